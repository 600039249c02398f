"""A load of blocks from a store, as plain data: what is asked for and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class LoadOutcome(Enum):
    """Why a load ended; values are the labels of metrics."""

    COMPLETE = "complete"
    MISSING = "missing"
    LATE = "late"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Names to load into blocks of the pool, one each, in order of position.

    Attributes:
        load_id: Of the attach.
        address: Of the store.
        names: 16 bytes each.
        blocks: Ids in the pool that nothing else uses until the answer.
        timeout_seconds: When to give up.
    """

    load_id: int
    address: str
    names: Sequence[bytes]
    blocks: Sequence[int]
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """How a load ended.

    Attributes:
        load_id: From the order.
        num_blocks: How many of the first blocks are written and named.
        outcome: Why it ended.
        num_bytes: Payload that came, verified.
        seconds: From the order to the last of it.
        tiers: How many of the first blocks came from which tier.
    """

    load_id: int
    num_blocks: int
    outcome: LoadOutcome
    num_bytes: int = 0
    seconds: float = 0.0
    tiers: Mapping[str, int] = field(default_factory=dict)
