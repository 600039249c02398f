"""The kvstore role: stores KV blocks by their content names, without any notion of requests."""
