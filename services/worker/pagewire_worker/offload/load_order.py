"""A load of blocks from a store or another worker, as plain data: what is asked for and how it
ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pagewire_shared.kv.transport import KvTransport


class LoadOutcome(Enum):
    """Why a load ended; values are the labels of metrics."""

    COMPLETE = "complete"
    MISSING = "missing"
    LATE = "late"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """Names to load into blocks of the pool, one each, in order of position.

    Attributes:
        load_id: Of the attach.
        address: Of the store, or of the other worker.
        names: 16 bytes each.
        blocks: Ids in the pool that nothing else uses until the answer.
        timeout_seconds: When to give up.
        worker_id: Of the other worker; empty for a store.
    """

    load_id: int
    address: str
    names: Sequence[bytes]
    blocks: Sequence[int]
    timeout_seconds: float
    worker_id: bytes = b""


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """How a load ended.

    Attributes:
        load_id: From the order.
        num_blocks: How many of the first blocks are written and named.
        outcome: Why it ended.
        num_bytes: Payload that came, verified.
        seconds: From the order to the last of it.
        tiers: How many of the first blocks came from which tier of a store.
        transport: How they came from another worker; None for a store, or when it did not accept.
        transfer_seconds: From the first to the last of them, only of another worker.
    """

    load_id: int
    num_blocks: int
    outcome: LoadOutcome
    num_bytes: int = 0
    seconds: float = 0.0
    tiers: Mapping[str, int] = field(default_factory=dict)
    transport: KvTransport | None = None
    transfer_seconds: float = 0.0
