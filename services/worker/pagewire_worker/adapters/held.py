"""Keeps which adapter is in each slot, while threads fill some slots and steps read others."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class HeldAdapters:
    """The identities of adapters by their slots. Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, bytes] = {}
        self._epoch = 0

    @property
    def ids(self) -> dict[int, bytes]:
        """The identities by the slots that hold an adapter."""
        with self._lock:
            return dict(self._held)

    @contextmanager
    def filling(self, slot: int, adapter_id: bytes) -> Iterator[None]:
        """Fill a slot in the context: it is empty meanwhile, and stays so if that raises."""
        with self._lock:
            epoch = self._epoch
            self._held.pop(slot, None)
        yield
        with self._lock:
            if epoch == self._epoch:
                self._held[slot] = adapter_id

    def clear(self) -> None:
        """Empty all slots; those that are being filled stay empty."""
        with self._lock:
            self._epoch += 1
            self._held.clear()
