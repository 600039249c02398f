"""gRPC code that every role shares: options, addresses, server and error mapping."""
