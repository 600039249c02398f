"""Attention over the paged cache: one protocol, its implementations, and their table."""
