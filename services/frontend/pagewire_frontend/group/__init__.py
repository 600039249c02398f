"""Several frontend processes that answer as one: their membership, peers and common metrics."""
