"""Prompts to token ids: templates and long texts, off the event loop and bounded."""
