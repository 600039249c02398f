"""The worker role: one model replica that runs the plans of its scheduler."""
