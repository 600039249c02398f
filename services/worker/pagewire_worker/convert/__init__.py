"""Turns checkpoints of other formats into safetensors, in a process of its own."""
