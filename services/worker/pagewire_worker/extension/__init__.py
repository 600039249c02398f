"""Code of an operator that runs in a worker, where its start has asked for it."""
