"""Makes the certificates of a cell's roles, with an authority of its own."""
