"""KV blocks between processes: hashes, layouts, shared memory and streams of chunks."""
