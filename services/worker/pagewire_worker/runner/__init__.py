"""Runs step plans on one device, in one thread."""
