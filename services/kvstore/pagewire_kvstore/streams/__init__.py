"""The gRPC streams of the store: put, get and watch."""
