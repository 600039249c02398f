"""Receives the tensors of new weights, and writes them as a checkpoint that workers load."""
