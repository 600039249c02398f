"""Content of adapters that the store keeps beside its blocks, by identity."""
