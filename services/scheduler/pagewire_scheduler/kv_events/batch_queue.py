"""Hands batches from the event loop to the publishing thread, in order and bounded in bytes. A full
queue refuses a batch; it never waits."""

import socket
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.blocks.cache_changes import BlockContent, CacheChange
from pagewire_scheduler.kv_events.wire_events import CacheInstance
from pagewire_shared.identity.ids import BlockName

MAX_QUEUE_BYTES: Final = 64 * 2**20
"""Bytes of batches that wait for the thread, as `CacheBatch.num_bytes` counts them."""

_CHANGE_BYTES: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBatch:
    """Changes of one instance, for one message.

    Attributes:
        timestamp: Seconds since 1970.
        num_dropped: Batches of any instance that were dropped just before it; their sequence
            numbers stay unused, so that subscribers see a gap.
        contents: All that the instance has after the batch, where batches of it were dropped.
        is_lagging: Whether batches of any instance are missing, which later ones make up for.
    """

    instance: CacheInstance
    changes: list[CacheChange]
    timestamp: float
    num_dropped: int = 0
    contents: Mapping[BlockName, BlockContent] | None = None
    is_lagging: bool = False

    @property
    def num_bytes(self) -> int:
        """The memory that it takes, roughly; of `contents` only the references."""
        sizes = sum(len(one.content.tokens) for one in self.changes if one.content is not None)
        return sizes + _CHANGE_BYTES * (1 + len(self.changes) + len(self.contents or ()) // 4)


class BatchQueue:
    """A queue of batches, with a socket that is readable while the thread has something to do."""

    def __init__(self, max_batches: int, max_bytes: int = MAX_QUEUE_BYTES) -> None:
        self._max_batches, self._max_bytes = max_batches, max_bytes
        self._batches: deque[tuple[CacheBatch, int]] = deque()
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self.is_closed = False

    @property
    def wake_fd(self) -> int:
        """A descriptor to poll."""
        return self._reader.fileno()

    def put(self, batch: CacheBatch) -> bool:
        """Enter a batch; return whether there was room."""
        num_bytes = batch.num_bytes
        with self._lock:
            is_full = len(self._batches) >= self._max_batches
            if is_full or (self._batches and self._num_bytes + num_bytes > self._max_bytes):
                return False
            self._batches.append((batch, num_bytes))
            self._num_bytes += num_bytes
            is_first = len(self._batches) == 1
        if is_first:
            self._wake()
        return True

    def take(self) -> CacheBatch | None:
        """Return the oldest batch, or None."""
        with self._lock:
            if not self._batches:
                return None
            batch, num_bytes = self._batches.popleft()
            self._num_bytes -= num_bytes
            return batch

    def close(self) -> None:
        """Have the thread end, when it has taken what is there."""
        self.is_closed = True
        self._wake()

    def drain_wakes(self) -> None:
        """Make the descriptor unreadable, before batches are taken."""
        try:
            while self._reader.recv(4096):
                continue
        except BlockingIOError:
            return

    def release(self) -> None:
        """Close the sockets; the thread has ended."""
        self._reader.close()
        self._writer.close()

    def _wake(self) -> None:
        try:
            self._writer.send(b"w")
        except BlockingIOError:
            return  # it is readable in any case
