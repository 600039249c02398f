"""Answers to operators about processes that run: stacks, profiles and calls."""
