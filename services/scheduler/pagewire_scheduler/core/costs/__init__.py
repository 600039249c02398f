"""Cost models: whether to load, hand off or compute. Pure arithmetic."""
