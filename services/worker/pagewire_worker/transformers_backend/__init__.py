"""Models that transformers runs over our paged KV cache."""
