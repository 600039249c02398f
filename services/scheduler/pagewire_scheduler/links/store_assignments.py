"""Assigns each worker a KV store to write to, where there are several."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class StoreAssignments:
    """Spreads attached workers evenly over the stores."""

    def __init__(self, stores: Sequence[str]) -> None:
        """Take the addresses of the stores, each once."""
        self._num_workers = dict.fromkeys(stores, 0)

    @contextmanager
    def take(self) -> Iterator[tuple[str, ...]]:
        """Yield all stores while a worker is attached; the worker writes to the first one."""
        if not self._num_workers:
            yield ()
            return
        counts, stores = self._num_workers, tuple(self._num_workers)
        first = min(stores, key=counts.__getitem__)
        start = stores.index(first)
        counts[first] += 1
        try:
            yield stores[start:] + stores[:start]
        finally:
            counts[first] -= 1
