"""Runs models of transformers over the paged KV cache."""
