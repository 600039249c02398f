"""Implementations of paged attention and their registry."""
