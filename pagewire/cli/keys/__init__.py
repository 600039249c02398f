"""Makes API keys."""
