"""The stream to the scheduler, the worker's own gRPC server, and its metrics."""
