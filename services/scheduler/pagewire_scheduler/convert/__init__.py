"""Conversions between protobuf messages and the core's plain data."""
