"""Weighted fair order of service between tenants: how much each was served, and a queue that asks.

The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024,
arXiv:2401.00588): the tenant that was served least, by tokens divided by its weight, comes first; a
tenant that comes back is lifted to the least of those who wait, or with nobody waiting to who left
last, so that nobody saves up.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import Final

from pagewire_scheduler.core.queue_sums import QueueSums
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.waiting_queue import WaitingQueue

# An output token occupies a batch for a whole step, a prompt token only a share of one.
OUTPUT_TOKEN_COST: Final = 2
_MAX_IDLE_TENANTS: Final = 1024
_NOT_COUNTED: Final = QueueSums()  # the queue of all tenants counts


class TenantLedger:
    """What each tenant was served, in weighted tokens, over all workers of a cell."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._served: dict[str, float] = {}
        self._num_waiting: dict[str, int] = {}
        self._last_left = 0.0

    def served(self, tenant: str) -> float:
        """Return the counter of `tenant`; of one forgotten, that of who left last."""
        return self._served.get(tenant, self._last_left)

    def enter(self, tenant: str) -> None:
        """A sequence of `tenant` waits; the first one lifts its counter."""
        if tenant in self._num_waiting:
            self._num_waiting[tenant] += 1
            return
        least = min((self._served[one] for one in self._num_waiting), default=self._last_left)
        self._served[tenant] = max(self._served.get(tenant, least), least)
        self._num_waiting[tenant] = 1
        self._forget_idle()

    def leave(self, tenant: str) -> None:
        """A sequence of `tenant` waits no more."""
        count = self._num_waiting[tenant] - 1
        if count:
            self._num_waiting[tenant] = count
        else:
            del self._num_waiting[tenant]
            self._last_left = self._served[tenant]

    def charge(self, tenant: str, num_tokens: int) -> None:
        """Count work done for `tenant`."""
        weight = self._weights.get(tenant, 1.0)
        self._served[tenant] = self.served(tenant) + num_tokens / weight

    def _forget_idle(self) -> None:
        """Tenant names come from clients: those at rest for long are forgotten."""
        if len(self._served) > len(self._num_waiting) + _MAX_IDLE_TENANTS:
            self._served = {tenant: self._served[tenant] for tenant in self._num_waiting}


class TenantQueue(WaitingQueue):
    """A queue per tenant; the tenant that was served least is looked at first."""

    __slots__ = ("_ledger", "_tenants")

    def __init__(self, ledger: TenantLedger, sums: QueueSums) -> None:
        super().__init__(sums)
        self._ledger = ledger
        self._tenants: dict[str, WaitingQueue] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tenants.values()))

    def __iter__(self) -> Iterator[Sequence]:
        for queue in self._tenants.values():
            yield from queue

    def __contains__(self, sequence: Sequence) -> bool:
        queue = self._tenants.get(sequence.request.submission.tenant)
        return queue is not None and sequence in queue

    def push(self, sequence: Sequence) -> None:
        """Enter a sequence at its place among those of its tenant."""
        tenant = sequence.request.submission.tenant
        self._tenants.setdefault(tenant, WaitingQueue(_NOT_COUNTED)).push(sequence)
        sequence.queue = self
        self.num_expected += sequence.num_expected
        self.sums.enter(sequence)
        self._ledger.enter(tenant)

    def at(self, index: int) -> Sequence | None:
        """Return who is at `index`: first the heads of all tenants, then who is behind them."""
        depth = 0
        while index >= 0:
            level = [name for name, queue in self._tenants.items() if len(queue) > depth]
            if not level:
                return None
            if index < len(level):
                by_service = heapq.nsmallest(
                    index + 1, level, key=lambda name: (self._ledger.served(name), name)
                )
                return self._tenants[by_service[index]].at(depth)
            index -= len(level)
            depth += 1
        return None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        tenant = sequence.request.submission.tenant
        queue = self._tenants[tenant]
        sequence.queue = queue
        queue.remove(sequence)
        if not len(queue):
            del self._tenants[tenant]
        self.num_expected -= sequence.num_expected
        self.sums.leave(sequence)
        self._ledger.leave(tenant)
