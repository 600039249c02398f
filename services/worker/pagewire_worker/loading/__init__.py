"""Builds a replica: model source, weights, size of the KV cache, profile run and warm-up."""
