"""Streams to workers, frontends and KV stores, and the step loop that drives the core."""
