"""Reports about the workers of a cell, the pairs that exchange KV blocks, and probes of pairs."""

from dataclasses import dataclass, field

from pagewire_scheduler.core.data.model_totals import ModelTotals
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.sleep.state import WorkerSleep
from pagewire_shared.weights.version import NO_WEIGHTS, WeightsVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """The end of a probe. Both workers keep its blocks until the probe is ended.

    Attributes:
        names: Names of the blocks that arrived.
        num_bytes: Payload that arrived.
        seconds: From the order to the last block.
        transport: The transport of the blocks; None when no block arrived.
        error: The reason of a failure; None on success.
    """

    prefill: bytes
    decode: bytes
    names: tuple[BlockName, ...]
    num_bytes: int
    seconds: float
    transport: KvTransport | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntry:
    """One worker; see WorkerTopology in admin.proto."""

    worker_id: bytes
    model: str
    roles: frozenset[Role]
    is_draining: bool
    kv_endpoint: str
    kv_transports: tuple[KvTransport, ...]
    layout_fingerprint: bytes
    num_running: int
    num_waiting: int
    max_num_seqs: int
    sleep: WorkerSleep | None = None
    weights: WeightsVersion = NO_WEIGHTS


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEntry:
    """Two workers; see PairTopology in admin.proto.

    `refusal` says why no block moves from `prefill` to `decode`; None when it does.
    """

    prefill: bytes
    decode: bytes
    refusal: str | None
    transport: KvTransport | None
    bytes_per_second: float | None
    num_transfers: int
    num_failures: int


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """One KV store, and how many blocks it says it has."""

    address: str
    is_up: bool
    num_blocks: int


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """The totals of a model."""

    model: str
    totals: ModelTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One cell; `handoff` is the policy: auto, always or never."""

    handoff: str
    workers: tuple[WorkerEntry, ...]
    pairs: tuple[PairEntry, ...]
    warnings: tuple[str, ...]
    stores: tuple[StoreEntry, ...] = ()
    num_copies: int = 1
    models: tuple[ModelEntry, ...] = ()


@dataclass(slots=True)
class ProbeReport:
    """The result of a probe; see ProbeResult in admin.proto. `error` is empty on success."""

    prefill: bytes
    decode: bytes
    num_blocks: int = 0
    num_bytes: int = 0
    transport: KvTransport | None = None
    is_equal: bool = False
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class CellReport:
    """All probes of a cell, and its problems, one sentence each."""

    probes: list[ProbeReport]
    problems: list[str] = field(default_factory=list)
