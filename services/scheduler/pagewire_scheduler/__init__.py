"""The scheduler role: requests, blocks and plans. Never sees text, never imports torch."""
