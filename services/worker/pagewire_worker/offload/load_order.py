"""Orders to load blocks from a store or another worker, and their answers, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pagewire_shared.kv.transport import KvTransport


class LoadOutcome(Enum):
    """Reasons why a load ended; values are the labels of metrics."""

    COMPLETE = "complete"
    MISSING = "missing"
    LATE = "late"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """Names to load into blocks of the pool, one each, in order of position.

    Attributes:
        load_id: Unique within an attach.
        address: Address of the store, or of the other worker.
        names: 16 bytes each.
        blocks: Ids in the pool that nothing else uses until the answer.
        timeout_seconds: Longest duration of the load.
        worker_id: Id of the other worker; empty for a store.
    """

    load_id: int
    address: str
    names: Sequence[bytes]
    blocks: Sequence[int]
    timeout_seconds: float
    worker_id: bytes = b""


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """Outcome of a load.

    Attributes:
        num_blocks: Blocks that are written and named, a prefix of the order.
        outcome: Why the load ended.
        num_bytes: Verified bytes of payload.
        seconds: From the order to the last byte.
        tiers: Written blocks per tier of a store.
        transport: Transport from another worker; None for a store, or if it did not accept.
        transfer_seconds: From the first to the last byte, only for another worker.
    """

    load_id: int
    num_blocks: int
    outcome: LoadOutcome
    num_bytes: int = 0
    seconds: float = 0.0
    tiers: Mapping[str, int] = field(default_factory=dict)
    transport: KvTransport | None = None
    transfer_seconds: float = 0.0
