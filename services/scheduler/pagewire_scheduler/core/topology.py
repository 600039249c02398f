"""Which workers a cell has, and which pairs of them exchange KV blocks, as plain data."""

from dataclasses import dataclass

from pagewire_scheduler.core.roles import Role
from pagewire_shared.kv_transport import KvTransport


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One cell; `handoff` is the policy: auto, always or never."""

    handoff: str
    workers: tuple[WorkerEntry, ...]
    pairs: tuple[PairEntry, ...]
    warnings: tuple[str, ...]
