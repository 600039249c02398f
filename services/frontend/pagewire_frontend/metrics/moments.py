"""Moments of a traced request: what happened inside a cell, and when."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

MAX_MOMENTS: Final = 256
"""Of a choice, over all its runs; later ones are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRead:
    """What one KV store has sent for a load, and how long its blocks were waited for."""

    address: str
    seconds: float
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellMoment:
    """One moment of a choice.

    Attributes:
        kind: "prefill", "load", "pause" or "decode".
        began_at: Seconds of time.monotonic(); in a report, since the submit.
        worker: Hex id; "" for a pause.
        source: Hex id of the worker that blocks came from; "" for stores.
        transport: How they came from a worker; None for stores.
        tiers: Blocks by the tier that they came from.
        cause: "worker_lost", "preempted" or "moved" of a pause; "" where it is not known.
        epoch: The run that it belongs to.
    """

    kind: str
    began_at: float
    seconds: float
    worker: str = ""
    num_tokens: int = 0
    num_bytes: int = 0
    num_blocks: int = 0
    source: str = ""
    transport: str | None = None
    stores: tuple[StoreRead, ...] = ()
    tiers: Mapping[str, int] = field(default_factory=dict)
    cause: str = ""
    epoch: int = 0

    @property
    def ended_at(self) -> float:
        """The end."""
        return self.began_at + self.seconds

    def placed(self, submitted_at: float, epoch: int) -> "CellMoment":
        """Return a moment of a report at its instant."""
        return replace(self, began_at=submitted_at + self.began_at, epoch=epoch)
