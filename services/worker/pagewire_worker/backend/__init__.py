"""Interfaces between the model runner, the models and attention, with their data."""
