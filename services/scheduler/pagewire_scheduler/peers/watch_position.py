"""How far a watcher of a KV store has heard, and which message may come next. Pure.

A listing carries the number of the newest event that it includes, and nothing marks its end: it is
over when the event after it comes. So a stream that breaks before that is not resumed but listed
again, or names of the rest would be missed for good.
"""

import enum

from pagewire_shared.errors import WireError


class WatchedChange(enum.Enum):
    """What happened to blocks of a store."""

    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"


class WatchPosition:
    """Of one store over all its streams."""

    def __init__(self) -> None:
        self._store_id = b""
        self._sequence: int | None = None
        self._is_listing = False
        self._is_new = True

    @property
    def store_id(self) -> bytes:
        """The store that was listened to last; empty for none."""
        return self._store_id

    def open(self, store_id: bytes) -> int | None:
        """Begin a stream of `store_id`; return the next event wanted, or None for a listing.

        None says, too, that everything known must be forgotten.
        """
        if store_id != self._store_id or self._is_listing:
            self.forget()
        self._store_id = store_id
        self._is_new = True
        return None if self._sequence is None else self._sequence + 1

    def forget(self) -> None:
        """Begin anew with a listing."""
        self._store_id = b""
        self._sequence = None
        self._is_listing = False

    def advance(self, sequence: int, change: WatchedChange) -> None:
        """Take note of a message. Raises WireError when it cannot be the next one."""
        last, is_first = self._sequence, self._is_new
        self._is_new = False
        if change is WatchedChange.CLEARED:
            # The store may have restarted since its hello: then its numbers begin again.
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
