"""The slots of one worker: the sequence in each slot, the free slots, and those kept for beams."""

import heapq

from pagewire_scheduler.core.state.request import Sequence


class WorkerSlots:
    """The rows of a worker's batch.

    Attributes:
        owners: The sequence that runs in each slot; None for a slot that is free or comes free.
        free: A heap: the lowest slot first.
        freed_to_report: Slots left since the last plan. These slots are free already: the plan that
            gives one out again clears it first.
        num_reserved: Free slots kept for the beams of searches that have begun.
    """

    __slots__ = ("free", "freed_to_report", "num_reserved", "owners")

    def __init__(self, num_slots: int) -> None:
        self.owners: list[Sequence | None] = [None] * num_slots
        self.free = list(range(num_slots))
        self.freed_to_report: list[int] = []
        self.num_reserved = 0

    def __len__(self) -> int:
        return len(self.owners)

    @property
    def num_free(self) -> int:
        """Slots that a sequence may be started in."""
        return len(self.free) - self.num_reserved

    def take(self, sequence: Sequence) -> int:
        """Give the lowest free slot to `sequence`, and return the slot."""
        slot = heapq.heappop(self.free)
        self.owners[slot] = sequence
        return slot

    def leave(self, slot: int, sequence: Sequence) -> None:
        """Take the slot of `sequence` away; a step may still name the slot."""
        assert self.owners[slot] is sequence, "a slot changed hands while its sequence ran"
        self.owners[slot] = None

    def release(self, slot: int) -> None:
        """Put a slot that no step names back to the free ones."""
        heapq.heappush(self.free, slot)
        self.freed_to_report.append(slot)

    def collect_freed(self) -> list[int]:
        """Return the slots that the plan being sent reports as freed."""
        freed, self.freed_to_report = self.freed_to_report, []
        return freed

    def reserve(self, leader: Sequence, count: int) -> None:
        """Keep `count` more slots free for the search of `leader`; fewer where negative."""
        leader.placement.num_reserved_slots += count
        self.num_reserved += count
