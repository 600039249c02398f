"""Metrics of a frontend, under its own and under vLLM's names."""
