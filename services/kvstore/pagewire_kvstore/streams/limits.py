"""Bounds of the store's streams, and the budget of bytes that put streams share."""

from dataclasses import dataclass

from pagewire_shared.errors import OverloadedError


class ByteBudget:
    """A bound on bytes that several owners take and give back.

    Attributes:
        used_bytes: Bytes taken at the moment.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes that may still be taken."""
        return self.max_bytes - self.used_bytes

    def take(self, num_bytes: int) -> None:
        """Take bytes. Raises OverloadedError, and takes none, when too few are free."""
        if num_bytes > self.free_bytes:
            raise OverloadedError(
                f"{self.used_bytes} bytes of blocks are on their way in; with {num_bytes} more"
                f" there would be more than {self.max_bytes}"
            )
        self.used_bytes += num_bytes

    def give(self, num_bytes: int) -> None:
        """Give bytes back."""
        self.used_bytes -= num_bytes
        assert self.used_bytes >= 0, "more given back than taken"


MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStreamLimits:
    """Bounds of all streams of a store.

    Attributes:
        stall_seconds: Longest wait for a silent peer.
        max_put_bytes: Bytes of blocks that are on their way in, over all streams.
        max_puts, max_gets, max_watches: Most streams of a kind at a time.
        max_adapter_puts, max_adapter_gets: Most adapters that are written and read at a time.
    """

    stall_seconds: float = 10.0
    max_put_bytes: int = 128 * MIB
    max_puts: int = 256
    max_gets: int = 1024
    max_watches: int = 64
    max_adapter_puts: int = 8
    max_adapter_gets: int = 32
