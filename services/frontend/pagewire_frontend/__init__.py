"""The frontend role: everything that is text. Never schedules, never imports torch."""
