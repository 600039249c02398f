"""KV loads into a worker's pool, from KV stores or other workers: orders and answers, as on the
wire."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.copies import BlockCopies
from pagewire_shared.kv.transport import KvTransport


@dataclass(frozen=True, slots=True)
class WorkerSource:
    """A worker that blocks are pulled from: its address and its id."""

    address: str
    worker_id: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOrder:
    """An order to load blocks.

    Attributes:
        load_id: Unique on an attach.
        store: Address of the store. For another worker the scheduler's name of the pair, which is
            not sent.
        names: In order of position; a block is of use only with all before it.
        blocks: Destination blocks of the pool; nothing else uses them until the answer.
        timeout_ms: When the worker gives up and answers with the blocks it has.
        worker: The worker that has the blocks, or computes them right now; None for a store.
        copies: The stores that have the blocks, where several can be reached; else None.
    """

    load_id: int
    store: str
    names: Sequence[BlockName]
    blocks: Sequence[int]
    timeout_ms: int
    worker: WorkerSource | None = None
    copies: BlockCopies | None = None

    @property
    def timeout_seconds(self) -> float:
        """Longest duration of the load."""
        return self.timeout_ms / 1000


class LoadOutcome(enum.Enum):
    """Reasons why a load ended; values are the labels of metrics."""

    COMPLETE = "complete"
    MISSING = "missing"  # the store did not have all, or one was damaged
    LATE = "late"
    FAILED = "failed"  # the store could not be reached, or broke the contract
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class StorePart:
    """What one store has done for a load from several.

    Attributes:
        store: Index in the stores of the order.
        num_bytes: Verified bytes that came from it, in `seconds`.
        missing: Indices of blocks that it did not have, or had damaged.
    """

    store: int
    num_bytes: int
    seconds: float
    outcome: LoadOutcome
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """The answer to an order.

    Attributes:
        num_blocks: How many of the first blocks are VALID under their names now.
        num_bytes: Verified bytes of payload that came, in `seconds`.
        tiers: (tier, number of the first blocks that came from it).
        transport: How the blocks came from another worker; None for a store, or if it refused.
        transfer_seconds: From the first byte to the last, of another worker.
        parts: What each store has done, each store once; empty for an order without copies.
    """

    load_id: int
    num_blocks: int
    outcome: LoadOutcome
    num_bytes: int = 0
    seconds: float = 0.0
    tiers: tuple[tuple[str, int], ...] = ()
    transport: KvTransport | None = None
    transfer_seconds: float = 0.0
    parts: tuple[StorePart, ...] = ()
