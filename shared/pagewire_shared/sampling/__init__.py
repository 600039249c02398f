"""Parameters of generation, pooling and structured outputs, with their checks."""
