"""Guided decoding: compiled grammars, matchers and token masks."""
