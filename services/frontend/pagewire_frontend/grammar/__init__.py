"""Checks in a separate process that a grammar compiles."""
