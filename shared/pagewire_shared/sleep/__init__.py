"""The sleep of workers: states, legal moves, parts of memory, and their messages."""
