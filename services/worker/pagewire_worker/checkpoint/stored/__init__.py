"""Formats of quantized checkpoints: how their matrices are stored, and what they stand for."""
