"""Weighted fair queueing between tenants: a ledger of the service that each tenant received, and a
queue ordered by it.

This is the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI
2024, arXiv:2401.00588). The tenant with the fewest served tokens, divided by its weight, comes
first. A tenant that comes back is lifted to the least counter of the waiting tenants. If none
waits, it is lifted to the counter of the tenant that left last, so that idle tenants save nothing
up.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pagewire_scheduler.core.data.queue_reasons import QueueReason, WaitClock
from pagewire_scheduler.core.queueing.service_order import ServiceOrder
from pagewire_scheduler.core.state.queue_sums import QueueSums
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.waiting_queue import WaitingQueue

# An output token occupies a batch for a whole step, a prompt token only a share of one.
OUTPUT_TOKEN_COST: Final = 2
_MAX_IDLE_TENANTS: Final = 1024
_NOT_COUNTED: Final = QueueSums()  # the queue of all tenants counts


class TenantLedger:
    """The service of each tenant, in weighted tokens, over all workers of a cell.

    Attributes:
        version: Grows with every charge, after which an order found before may be outdated.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.version = 0
        self._weights = weights
        self._served: dict[str, float] = {}
        self._num_waiting: dict[str, int] = {}
        self._num_held: dict[str, int] = {}
        self._waiting = ServiceOrder(self.served)
        self._last_left = 0.0

    def served(self, tenant: str) -> float:
        """Return the counter of `tenant`; for a forgotten tenant that of the tenant that left
        last."""
        return self._served.get(tenant, self._last_left)

    def enter(self, tenant: str) -> None:
        """Count a waiting sequence of `tenant`; the first one lifts the counter of service."""
        if tenant in self._num_waiting:
            self._num_waiting[tenant] += 1
            return
        first = self._waiting.first()
        least = self._last_left if first is None else self._served[first]
        self._served[tenant] = max(self._served.get(tenant, least), least)
        self._num_waiting[tenant] = 1
        self._waiting.add(tenant)
        self._forget_idle()

    def leave(self, tenant: str) -> None:
        """Count a waiting sequence of `tenant` less."""
        count = self._num_waiting[tenant] - 1
        if count:
            self._num_waiting[tenant] = count
        else:
            del self._num_waiting[tenant]
            self._waiting.discard(tenant)
            self._last_left = self._served[tenant]

    def charge(self, tenant: str, num_tokens: int) -> None:
        """Charge work that was done for `tenant`."""
        weight = self.weight(tenant)
        self._served[tenant] = self.served(tenant) + num_tokens / weight
        self.version += 1

    def hold(self, tenant: str) -> None:
        """Keep the counter of `tenant` for a request, also while no sequence of the tenant
        waits."""
        self._num_held[tenant] = self._num_held.get(tenant, 0) + 1

    def release(self, tenant: str) -> None:
        """Release the counter of `tenant` for a request that ended."""
        count = self._num_held[tenant] - 1
        if count:
            self._num_held[tenant] = count
        else:
            del self._num_held[tenant]

    def weight(self, tenant: str) -> float:
        """Return the share of `tenant`, relative to those of others."""
        return self._weights.get(tenant, 1.0)

    def _forget_idle(self) -> None:
        """Forget idle tenants but those with the most service: clients choose the names.

        The counters of the others matter least, because a tenant that comes back is lifted anyway.
        """
        num_needed = len(self._num_waiting) + len(self._num_held)
        if len(self._served) <= num_needed + _MAX_IDLE_TENANTS:
            return
        needed = self._num_waiting.keys() | self._num_held.keys()
        idle = [tenant for tenant in self._served if tenant not in needed]
        idle.sort(key=self.served)
        for tenant in idle[: -_MAX_IDLE_TENANTS // 2]:
            del self._served[tenant]


class TenantQueue(WaitingQueue):
    """A queue per tenant; the tenant with the least service comes first."""

    __slots__ = ("_front", "_ledger", "_num_members", "_order", "_tenants", "_version")

    def __init__(self, ledger: TenantLedger, sums: QueueSums, clock: WaitClock) -> None:
        super().__init__(sums, clock)
        self._ledger = ledger
        self._tenants: dict[str, WaitingQueue] = {}
        self._num_members = 0
        # Those taken out of the order by `at`, which go back when anything has changed.
        self._front: list[str] = []
        self._order = ServiceOrder(ledger.served)
        self._version = ledger.version

    def __len__(self) -> int:
        return self._num_members

    def __iter__(self) -> Iterator[Sequence]:
        for queue in self._tenants.values():
            yield from queue

    def __contains__(self, sequence: Sequence) -> bool:
        queue = self._tenants.get(sequence.request.submission.tenant)
        return queue is not None and sequence in queue

    def push(self, sequence: Sequence) -> None:
        """Enter a sequence at its place in the queue of its tenant."""
        tenant = sequence.request.submission.tenant
        self._put_back()
        queue = self._tenants.get(tenant)
        is_new = queue is None
        if queue is None:
            queue = self._tenants[tenant] = WaitingQueue(_NOT_COUNTED, self._new_clock(), self)
        queue.push(sequence)
        self._num_members += 1
        self.num_expected += sequence.placement.num_expected
        self.count_adapter(sequence, 1)
        self.sums.enter(sequence)
        self._ledger.enter(tenant)
        if is_new:
            self._order.add(tenant)

    def at(self, index: int) -> Sequence | None:
        """Return the sequence at `index`: first the heads of all tenants, then the ones behind
        them."""
        if self._version != self._ledger.version:
            self._put_back()
            self._version = self._ledger.version
        while len(self._front) <= index and (tenant := self._order.pop()) is not None:
            self._front.append(tenant)
        if index < len(self._front):
            return self._tenants[self._front[index]].at(0)
        # All tenants are in front: there are fewer than the planner examines.
        level, depth = self._front, 0
        while level:
            if index < len(level):
                return self._tenants[level[index]].at(depth)
            index -= len(level)
            depth += 1
            level = [tenant for tenant in level if len(self._tenants[tenant]) > depth]
        return None

    @property
    def num_parts(self) -> int:
        """Tenants in the queue."""
        return len(self._tenants)

    def note_reason(self, sequence: Sequence, reason: QueueReason) -> None:
        """Note what `sequence`, the first of its tenant, and all behind it wait for."""
        self._tenants[sequence.request.submission.tenant].clock.turn(reason)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        tenant = sequence.request.submission.tenant
        self._put_back()
        queue = self._tenants[tenant]
        queue.remove(sequence)
        self._num_members -= 1
        if not len(queue):
            del self._tenants[tenant]
            self._order.discard(tenant)
        self.num_expected -= sequence.placement.num_expected
        self.count_adapter(sequence, -1)
        self.sums.leave(sequence)
        self._ledger.leave(tenant)

    def _new_clock(self) -> WaitClock:
        """Return the clock of a tenant who comes; until a look others that wait come first."""
        reason = self.clock.first_reason
        if self._tenants and reason is QueueReason.STEP:
            reason = QueueReason.TENANTS
        return self.clock.of_part(reason)

    def _put_back(self) -> None:
        for tenant in self._front:
            self._order.add(tenant)
        self._front.clear()
