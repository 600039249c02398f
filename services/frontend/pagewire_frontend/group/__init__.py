"""Several frontend processes that answer as one: who is in the group, and what they ask."""
