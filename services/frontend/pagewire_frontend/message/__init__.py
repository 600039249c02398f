"""Formats in which models write tool calls and reasoning, and their readers."""
