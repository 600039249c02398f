"""Keeps tenants ordered by the service that they received, and finds the least served one without a
walk over all."""

import heapq
import itertools
from collections.abc import Callable
from typing import Final

_SLACK: Final = 64


class ServiceOrder:
    """A heap of (served, tenant); outdated entries are corrected when they reach the top.

    Counters only grow while a tenant is in the heap. An outdated entry thus stands too far in
    front, where it is found, and never too far behind.
    """

    __slots__ = ("_entries", "_heap", "_numbers", "_served")

    def __init__(self, served: Callable[[str], float]) -> None:
        self._served = served
        self._heap: list[tuple[float, str, int]] = []
        self._entries: dict[str, tuple[float, str, int]] = {}
        self._numbers = itertools.count()

    def add(self, tenant: str) -> None:
        """Enter a tenant that is not in the heap."""
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        entry = self._served(tenant), tenant, next(self._numbers)
        self._entries[tenant] = entry
        heapq.heappush(self._heap, entry)

    def discard(self, tenant: str) -> None:
        """Take a tenant out, if it is in the heap; its entry is dropped later."""
        self._entries.pop(tenant, None)

    def first(self) -> str | None:
        """Return the tenant with the least service; by name among equals."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            tenant = entry[1]
            if entries.get(tenant) != entry:
                heapq.heappop(heap)
                continue
            served = self._served(tenant)
            if served == entry[0]:
                return tenant
            entries[tenant] = (served, tenant, entry[2])
            heapq.heapreplace(heap, entries[tenant])
        return None

    def pop(self) -> str | None:
        """Take out and return the tenant with the least service."""
        tenant = self.first()
        if tenant is not None:
            heapq.heappop(self._heap)
            del self._entries[tenant]
        return tenant
