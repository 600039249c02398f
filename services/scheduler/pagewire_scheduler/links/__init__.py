"""Streams to workers, frontends and KV stores, and the loop that drives the core."""
