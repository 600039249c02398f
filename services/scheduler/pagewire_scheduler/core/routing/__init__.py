"""Routing of requests to workers: admission, placement, balancing, draining."""
