"""Weights in a GGUF file, read where they lie."""
