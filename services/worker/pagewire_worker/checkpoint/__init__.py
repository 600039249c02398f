"""Reads checkpoints: config.json, weights, data types and fingerprints."""
