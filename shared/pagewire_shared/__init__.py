"""What two Pagewire services must agree on. Imports neither torch nor tokenizers."""

PROTOCOL_MIN = 1
"""Oldest wire protocol version that this build speaks."""

PROTOCOL_MAX = 1
"""Newest wire protocol version that this build speaks."""
