"""The parts of a decoder: each a small object over its weights with one way to call it."""
