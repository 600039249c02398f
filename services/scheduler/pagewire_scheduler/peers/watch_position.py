"""Position of a watcher in the event stream of a KV store: checks which message may come next.

A listing carries the number of the newest event that it includes, and nothing marks its end. It is
over when the next event comes. A stream that breaks before that is not resumed but listed again;
otherwise the remaining names would be missed for good.
"""

import enum

from pagewire_shared.errors import WireError


class WatchedChange(enum.Enum):
    """A change of the blocks of a store."""

    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"


class WatchPosition:
    """The position in one store's events, over all its streams."""

    def __init__(self) -> None:
        self._store_id = b""
        self._sequence: int | None = None
        self._is_listing = False
        self._is_new = True

    @property
    def store_id(self) -> bytes:
        """The store of the newest stream; empty before the first."""
        return self._store_id

    def open(self, store_id: bytes) -> int | None:
        """Begin a stream of `store_id`; return the next event wanted, or None for a listing.

        With None the caller must also forget everything known of the store.
        """
        if store_id != self._store_id or self._is_listing:
            self.forget()
        self._store_id = store_id
        self._is_new = True
        return None if self._sequence is None else self._sequence + 1

    def forget(self) -> None:
        """Begin the next stream with a listing."""
        self._store_id = b""
        self._sequence = None
        self._is_listing = False

    def advance(self, sequence: int, change: WatchedChange) -> None:
        """Take note of a message. Raises WireError when it cannot be the next one."""
        last, is_first = self._sequence, self._is_new
        self._is_new = False
        if change is WatchedChange.CLEARED:
            # The store may have restarted since its hello; its numbers then begin again.
            is_next = is_first or last is None or sequence >= last
            is_listing = True
        elif last is None or sequence == last:
            is_next = last is None or (self._is_listing and change is WatchedChange.STORED)
            is_listing = change is WatchedChange.STORED
        else:
            is_next = sequence == last + 1
            is_listing = False
        if not is_next:
            raise WireError(f"block event {sequence} came after {last}")
        self._sequence, self._is_listing = sequence, is_listing
