"""Bounds of a store's streams. Plain data."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """What streams may take.

    Attributes:
        stall_seconds: Longest silence of a peer that the store waits for.
        max_put_bytes: Bytes of blocks that are on their way in, over all streams.
        max_puts, max_gets, max_watches: Most streams of a kind at a time.
    """

    stall_seconds: float = 10.0
    max_put_bytes: int = 128 * MIB
    max_puts: int = 256
    max_gets: int = 1024
    max_watches: int = 64
