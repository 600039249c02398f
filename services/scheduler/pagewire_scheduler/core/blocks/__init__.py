"""The KV blocks of one worker: pool, free list, block tables and prefix cache."""
