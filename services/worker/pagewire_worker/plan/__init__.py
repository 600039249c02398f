"""The error of a plan that cannot be run, and the worker's roles."""
