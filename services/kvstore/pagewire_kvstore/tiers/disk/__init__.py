"""The disk tier."""
