"""The machine that the worker runs on: cores, memory advice, remembered measurements."""
