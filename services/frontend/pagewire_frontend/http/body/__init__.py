"""Parsing of JSON bodies; large ones in a process of their own."""
