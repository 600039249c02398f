"""Demonstrations that a user can run and check."""
