"""The records of the core: requests, sequences, workers, frontends, and what belongs to them."""
