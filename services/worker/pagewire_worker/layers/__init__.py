"""Layers of the native decoder in torch."""
