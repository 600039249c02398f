"""Topology as operators see it: workers, pairs that exchange blocks, and warnings."""

from collections.abc import Iterator, Mapping

from pagewire_scheduler.core.data.settings import CoreCounts, CoreSettings
from pagewire_scheduler.core.data.topology import (
    ModelEntry,
    PairEntry,
    StoreEntry,
    Topology,
    WorkerEntry,
)
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.core.routing.queues import ModelQueues
from pagewire_scheduler.core.state.pairs import PairFacts, refusal_of
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex


def topology_of(
    workers: Mapping[bytes, WorkerState],
    queues: ModelQueues,
    settings: CoreSettings,
    stores: RemoteIndex,
    counts: CoreCounts,
) -> Topology:
    """Return the attached workers, which pairs of them exchange blocks, the KV stores, and the
    totals of each model."""
    entries = list(workers.values())
    return Topology(
        handoff=settings.handoff,
        workers=tuple(map(_worker_entry, entries)),
        pairs=tuple(
            _pair_entry(source, receiver, settings)
            for source in entries
            for receiver in entries
            if _is_pair(source, receiver)
        ),
        warnings=tuple(_warnings(queues, settings)),
        stores=tuple(StoreEntry(*facts) for facts in stores.facts()),
        num_copies=settings.num_copies,
        models=tuple(ModelEntry(*entry) for entry in sorted(counts.models.items())),
    )


def _pair_entry(source: WorkerState, receiver: WorkerState, settings: CoreSettings) -> PairEntry:
    facts = receiver.handoffs.pairs.get(source.info.worker_id, PairFacts())
    return PairEntry(
        prefill=source.info.worker_id,
        decode=receiver.info.worker_id,
        refusal=refusal_of(source.info, receiver.info, is_caching=settings.is_caching),
        transport=facts.transport,
        bytes_per_second=facts.bytes_per_second,
        num_transfers=facts.num_transfers,
        num_failures=facts.num_failures,
    )


def _warnings(queues: ModelQueues, settings: CoreSettings) -> Iterator[str]:
    for model, _ in queues.models():
        workers = queues.workers(model.name)
        having = {role: [one for one in workers if role in one.duty.roles] for role in Role}
        if not having[Role.DECODE]:
            yield f"no worker of {model.name} is to generate: those for prompts do it, too"
        elif not having[Role.PREFILL]:
            yield f"no worker of {model.name} is to compute prompts: the others do it, too"
        apart = [one for one in having[Role.PREFILL] if Role.DECODE not in one.duty.roles]
        if not apart or not having[Role.DECODE]:
            continue
        if settings.handoff == "never":
            yield f"workers of {model.name} are for prompts only, and --handoff is never"
        pairs = [(source.info, one.info) for source in apart for one in having[Role.DECODE]]
        if all(refusal_of(*pair, is_caching=settings.is_caching) is not None for pair in pairs):
            yield f"workers of {model.name} are for prompts only, and none can hand them off"


def _is_pair(source: WorkerState, receiver: WorkerState) -> bool:
    is_one_model = source.info.model.name == receiver.info.model.name
    is_apart = source is not receiver and is_one_model
    return is_apart and Role.PREFILL in source.duty.roles and Role.DECODE in receiver.duty.roles


def _worker_entry(worker: WorkerState) -> WorkerEntry:
    info = worker.info
    return WorkerEntry(
        worker_id=info.worker_id,
        model=info.model.name,
        roles=worker.duty.roles,
        is_draining=worker.duty.is_draining,
        kv_endpoint=info.kv_endpoint,
        kv_transports=info.kv_transports,
        layout_fingerprint=info.layout_fingerprint,
        num_running=len(worker.running),
        num_waiting=worker.num_sequences - len(worker.running),
        max_num_seqs=len(worker.slots),
        sleep=worker.duty.reported_sleep,
        weights=info.weights,
    )
