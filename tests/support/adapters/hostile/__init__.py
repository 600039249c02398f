"""Adapters that are broken on purpose, and a command that loads them into a running cell."""
