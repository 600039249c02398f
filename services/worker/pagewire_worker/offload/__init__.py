"""Moves KV blocks to and from KV stores, behind the connector protocol."""
