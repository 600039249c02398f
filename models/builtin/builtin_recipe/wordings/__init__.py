"""How users word their requests, trained and held out: patterns, and nothing else."""
