"""KV blocks that come from KV stores or other workers: loads, pulls and hand-offs."""
