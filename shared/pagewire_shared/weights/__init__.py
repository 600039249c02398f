"""Versions of the weights of a model, and orders to exchange them while workers run."""
