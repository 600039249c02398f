"""The Responses API behind its HTTP shapes: items, events, runs, and what is kept of them."""
