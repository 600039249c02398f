"""The gRPC services of operators: audit, roles, topology and self-test of a cell."""
