"""Requests with several sequences: forks for n > 1 and beam search."""
