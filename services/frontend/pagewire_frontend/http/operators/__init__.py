"""HTTP endpoints of operators: the memory, the weights and profiles of workers."""
