"""The block store: one set of blocks over several tiers."""
