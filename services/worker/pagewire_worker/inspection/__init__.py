"""Answers to operators about a worker that runs: profiles of its steps, calls of its extension."""
