"""Queueing: the order in which sequences are served, the share of each tenant, and overload."""
