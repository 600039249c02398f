"""State of connected peers: handshake checks, liveness, pending answers and watch positions. No
I/O."""
