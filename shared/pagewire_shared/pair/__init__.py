"""Two schedulers of one cell, as frontends and workers see them."""
