"""The native decoder, and the registry of its architectures."""
