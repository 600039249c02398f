"""Streams to schedulers, and the choice of a scheduler for a request."""
