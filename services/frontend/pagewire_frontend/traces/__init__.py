"""Spans of requests, made when a request has ended from what was measured, and sent by OTLP."""
