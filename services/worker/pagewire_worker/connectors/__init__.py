"""Connectors to KV stores of other projects. See docs/connectors.md."""
