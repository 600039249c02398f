"""What the result of a step changes: tokens, ends, failures."""
