"""Moments of a traced request: when something happened to one of its choices, and how long it took
as the worker measured it. Nothing is kept of other requests."""

import enum
from dataclasses import dataclass
from typing import Final

from pagewire_shared.kv.transport import KvTransport

MAX_MOMENTS: Final = 128
"""Of a request; later ones are left out."""


class MomentKind(enum.Enum):
    """What a moment is; see timeline.proto."""

    PREFILL = enum.auto()
    LOAD = enum.auto()
    PAUSE = enum.auto()
    DECODE = enum.auto()


class PauseCause(enum.Enum):
    """What made a choice wait after it had begun."""

    WORKER_LOST = enum.auto()
    PREEMPTED = enum.auto()
    MOVED = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One moment of a choice.

    Attributes:
        ended_at: Instant on the caller's clock: when the report of its end came.
        seconds: Its length.
        worker_id: Empty for a pause.
        num_tokens: Tokens that were computed.
        num_bytes, num_blocks: What came, of a load.
        source_id: The worker that it came from; empty for stores.
        stores: (address, seconds that its blocks were waited for, bytes) of each store.
        tiers: (tier, blocks that came from it).
        cause: Of a pause; None where others had their turn.
    """

    kind: MomentKind
    choice: int
    ended_at: float
    seconds: float
    worker_id: bytes = b""
    num_tokens: int = 0
    num_bytes: int = 0
    num_blocks: int = 0
    transport: KvTransport | None = None
    source_id: bytes = b""
    stores: tuple[tuple[str, float, int], ...] = ()
    tiers: tuple[tuple[str, int], ...] = ()
    cause: PauseCause | None = None


class Moments:
    """The moments of a request, in the order in which they ended."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: list[Moment] = []

    def add(self, moment: Moment) -> None:
        """Add a moment, unless there are too many."""
        if len(self._kept) < MAX_MOMENTS:
            self._kept.append(moment)

    def of(self, choice: int) -> tuple[Moment, ...]:
        """Return those of a choice."""
        return tuple(moment for moment in self._kept if moment.choice == choice)
