"""Speculative decoding: guesses tokens for later places, which steps verify."""
