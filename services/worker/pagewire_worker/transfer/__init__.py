"""Moves KV blocks to and from other workers."""
