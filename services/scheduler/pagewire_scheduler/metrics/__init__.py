"""Prometheus metrics of steps, of the cell and of KV transfers."""
