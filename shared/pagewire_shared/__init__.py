"""Code that two or more Pagewire services share; it imports neither torch nor tokenizers."""

PROTOCOL_MIN = 2
"""Oldest wire protocol version that this build speaks."""

PROTOCOL_MAX = 3
"""Newest wire protocol version that this build speaks; 3 brought messages of several submits."""
