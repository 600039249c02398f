"""Request slots, and the flat input batch of a step."""
