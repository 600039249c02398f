"""Architectures: their configuration, the decoder they share, and the table of builders."""
