"""The kvstore role: KV blocks by content. Never knows what a request is."""
