"""From a checked request to an open session; shared by gRPC and HTTP."""
