"""Step plans and results as plain data, and the worker's roles."""
