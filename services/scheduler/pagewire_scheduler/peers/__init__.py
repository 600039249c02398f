"""State of connected peers: handshakes, liveness and open questions. No I/O."""
