"""Results of steps: checks, new tokens, ends and failures of sequences."""
