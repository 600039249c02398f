"""Architectures that only transformers knows, run through the paged KV cache."""
