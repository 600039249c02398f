"""Says which role speaks on a link, by certificates of a cell's own authority."""
