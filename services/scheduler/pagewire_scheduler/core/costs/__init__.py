"""Cost models of KV transfers: load, hand off or compute."""
