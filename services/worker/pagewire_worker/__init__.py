"""The worker role: one model replica. Never decides who runs."""
