"""Guided decoding: compiled grammars, matchers and grammar bitmasks."""
