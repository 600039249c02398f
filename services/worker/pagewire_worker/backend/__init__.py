"""Protocols between the executor, the models and attention, with their data."""
