"""Pairs of workers that exchange KV blocks: checks whether two workers are compatible, and keeps
the measurements of each pair."""

from dataclasses import dataclass, field
from typing import Final

from pagewire_scheduler.core.costs.link_speed import LinkSpeed
from pagewire_scheduler.core.data.worker_info import WorkerInfo
from pagewire_shared.kv.transport import KvTransport

MIN_PROBE_SECONDS: Final = 30.0
"""After which a pair that was too slow is tried again."""

_UNIX: Final = "unix:"


@dataclass(slots=True)
class PairFacts:
    """Measurements of the way from one source to a receiver.

    Attributes:
        exposed: Seconds by bytes between the end of a prefill and the last of its blocks, or for
            blocks that were there the whole time: what moving costs the one who waits.
        num_transfers: Hand-offs that brought blocks.
        num_failures: Hand-offs that brought nothing.
        transport: How blocks moved last; None before any did.
        bytes_per_second: Of the newest transfer, from its first byte to the last. While a prompt
            is computed it is no faster than that.
        next_probe: Instant from which a pair that is too slow may be tried.
    """

    exposed: LinkSpeed = field(default_factory=LinkSpeed)
    num_transfers: int = 0
    num_failures: int = 0
    transport: KvTransport | None = None
    bytes_per_second: float | None = None
    next_probe: float = 0.0


def source_key(worker_id: bytes) -> str:
    """Return the key of a worker as a source of loads, where stores have addresses."""
    return f"worker:{worker_id.hex()}"


def refusal(source: WorkerInfo, receiver: WorkerInfo) -> str | None:
    """Return why no block moves from `source` to `receiver`; None when it can."""
    for name, mine, theirs in (
        ("models", receiver.model.model_fingerprint, source.model.model_fingerprint),
        ("block sizes", receiver.model.block_size, source.model.block_size),
        ("types", receiver.dtype, source.dtype),
        ("cache layouts or numerics", receiver.layout_fingerprint, source.layout_fingerprint),
    ):
        if mine != theirs:
            return f"their {name} differ"
    if not source.groups.has_full:
        return "blocks of sliding windows are not handed on without others"
    if not source.kv_endpoint or not source.kv_transports:
        return "the first hands out no blocks: it has no --listen, or --kv-transport off"
    if not receiver.pull_transports:
        return "the second takes no blocks of workers"
    return _unreachable(source, receiver)


def refusal_of(source: WorkerInfo, receiver: WorkerInfo, *, is_caching: bool) -> str | None:
    """Return why the scheduler moves no block from `source` to `receiver`; None when it does."""
    if not is_caching:
        return "prefix caching is off, and what is handed off is found in the cache"
    return refusal(source, receiver)


def _unreachable(source: WorkerInfo, receiver: WorkerInfo) -> str | None:
    is_one_host = bool(source.host_id) and source.host_id == receiver.host_id
    if source.kv_endpoint.startswith(_UNIX) and not is_one_host:
        return "the first is reached by a socket of its own host only"
    common = set(source.kv_transports) & set(receiver.pull_transports)
    if not is_one_host:
        common.discard(KvTransport.SHARED_MEMORY)
    return None if common else "they have no transport in common"
