"""What two Pagewire services must agree on. Imports neither torch nor tokenizers."""

PROTOCOL_MIN = 2
"""Oldest wire protocol version that this build speaks."""

PROTOCOL_MAX = 2
"""Newest wire protocol version that this build speaks."""
