"""The machine of the worker: cores, memory advice, stored measurements."""
