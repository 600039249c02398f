"""Log of the latest block events in order, from which a watcher that reconnects catches up."""

import enum
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pagewire_shared.identity.ids import BlockName


class BlockChange(enum.Enum):
    """Kind of a block event."""

    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"
    """All blocks are gone, or the watcher missed events: it must forget all names."""


@dataclass(frozen=True, slots=True)
class BlockEvent:
    """One change; `sequence` grows by one per event, from 1."""

    sequence: int
    change: BlockChange
    names: tuple[BlockName, ...] = ()


class EventLog:
    """The latest events of one store."""

    def __init__(self, max_events: int) -> None:
        self._events: deque[BlockEvent] = deque(maxlen=max_events)
        self._next_sequence = 1
        self._watchers: set[Callable[[], object]] = set()

    def subscribe(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` after every event; `watcher` must not wait."""
        self._watchers.add(watcher)

    def unsubscribe(self, watcher: Callable[[], object]) -> None:
        """Stop calling `watcher`."""
        self._watchers.discard(watcher)

    @property
    def next_sequence(self) -> int:
        """Sequence number of the next event."""
        return self._next_sequence

    def add(self, change: BlockChange, names: Sequence[BlockName] = ()) -> BlockEvent:
        """Append an event and return it."""
        event = BlockEvent(self._next_sequence, change, tuple(names))
        self._next_sequence += 1
        self._events.append(event)
        for watcher in self._watchers:
            watcher()
        return event

    def holds(self, sequence: int) -> bool:
        """Return whether the log has all events from `sequence` on; the next event counts, too."""
        first = self._next_sequence - len(self._events)
        return first <= sequence <= self._next_sequence

    def since(self, sequence: int) -> Iterator[BlockEvent]:
        """Yield the events from `sequence` on; `holds(sequence)` must be true."""
        assert self.holds(sequence), "too old, or of another store"
        num_new = self._next_sequence - sequence
        yield from islice(self._events, len(self._events) - num_new, None)
