"""Answers that are kept, and made again by another frontend where theirs is gone."""
