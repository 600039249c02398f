"""Builds a replica: weights, sizes of the KV cache, profile run and warm-up."""
