"""API keys, their limits and usage, and the log of admin calls."""
