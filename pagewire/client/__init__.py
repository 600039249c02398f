"""Clients of the gRPC API."""
