"""Donors and takers among the workers of one model: workers that could give waiting sequences away,
and workers with nothing to start. The sets are updated when a worker is planned for, so that
finding a partner needs no walk over all workers. `core.routing.queues` moves the sequences."""

from itertools import islice
from typing import Final

from pagewire_scheduler.core.state.worker import WorkerState

MAX_TAKERS: Final = 8
"""Workers with nothing to start that are offered what one cannot start, each time it is planned
for; the next time it is others' turn."""

MAX_DONORS: Final = 32
"""Workers with sequences that wait which one with nothing to start looks at."""


def is_taker(worker: WorkerState) -> bool:
    """Whether `worker` has slots and nothing of its own to start in them."""
    is_free = not len(worker.waiting) and worker.slots.num_free > 0
    return is_free and worker.duty.takes_new and not worker.fault_isolation


class Balance:
    """Donors and takers, as of the newest plan of each worker.

    A worker that has become a donor is planned for soon. A worker that is no taker any more is
    found out when it is asked.
    """

    __slots__ = ("_donors", "_takers")

    def __init__(self) -> None:
        self._donors: dict[WorkerState, None] = {}
        self._takers: dict[WorkerState, None] = {}

    def note(self, worker: WorkerState) -> None:
        """Update the sets for `worker`, which was planned for."""
        for members, is_one in (
            (self._donors, len(worker.waiting) > 0),
            (self._takers, is_taker(worker)),
        ):
            if is_one:
                members[worker] = None
            else:
                members.pop(worker, None)

    def forget(self, worker: WorkerState) -> None:
        """Forget a worker that is gone."""
        self._donors.pop(worker, None)
        self._takers.pop(worker, None)

    def some_donors(self) -> list[WorkerState]:
        """Return workers with waiting sequences."""
        return _rotate(self._donors, MAX_DONORS)

    def some_takers(self) -> list[WorkerState]:
        """Return workers with free slots and no sequence to start."""
        return _rotate(self._takers, MAX_TAKERS)


def _rotate(members: dict[WorkerState, None], most: int) -> list[WorkerState]:
    """Return the first of `members`, which become the last."""
    first = list(islice(members, most))
    if len(first) < len(members):
        for worker in first:
            del members[worker]
            members[worker] = None
    return first
