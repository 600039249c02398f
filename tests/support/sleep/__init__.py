"""Sleep, wake and kills of real processes."""
