"""The tiers that keep blocks: memory, disk and Redis."""
