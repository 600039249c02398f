"""Client of the AdminService: workers, their roles, and the pairs between which KV blocks move."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagewire.client.admin_client import ANSWER_MARGIN_SECONDS, admin_stub, key_metadata
from pagewire_protos.scheduler.v1 import admin_pb2, worker_attach_pb2
from pagewire_shared.kv.transport_convert import transport_from_message
from pagewire_shared.sleep.convert import sleep_from_message
from pagewire_shared.weights.convert import version_from_message

ROLES = {
    "prefill": worker_attach_pb2.WORKER_ROLE_PREFILL,
    "decode": worker_attach_pb2.WORKER_ROLE_DECODE,
}
"""Roles of a worker by their public names."""

TIMEOUT_SECONDS = 5.0
"""Longest time for the cells to answer calls for which they need no other process."""

_STATES: dict[int, str] = {
    admin_pb2.SCHEDULER_STATE_ACTIVE: "active",
    admin_pb2.SCHEDULER_STATE_STANDBY: "standby",
    admin_pb2.SCHEDULER_STATE_LOST: "lost",
}
_ROLE_NAMES: dict[int, str] = {number: name for name, number in ROLES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """One worker; see WorkerTopology in admin.proto.

    `memory` is awake, draining, asleep or waking; the next ones are those of WorkerSleep.
    `weights_version` is what answers name; empty from older schedulers.
    """

    worker: str
    model: str
    roles: tuple[str, ...]
    is_draining: bool
    kv_endpoint: str
    kv_transports: tuple[str, ...]
    layout: str
    num_running: int
    num_waiting: int
    max_num_seqs: int
    memory: str = "awake"
    sleep_level: int = 0
    sleep_num_bytes: int = 0
    sleep_error: str | None = None
    weights_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFacts:
    """Two workers; see PairTopology in admin.proto. Without a `refusal`, blocks move."""

    prefill: str
    decode: str
    refusal: str | None
    transport: str | None
    bytes_per_second: float | None
    num_transfers: int
    num_failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFacts:
    """One tier of a KV store; see StoreTier in admin.proto. With a `fault` it does not work."""

    tier: str
    num_blocks: int
    used_bytes: int
    capacity_bytes: int
    fault: str | None


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One KV store; see StoreTopology in admin.proto."""

    address: str
    is_up: bool
    num_blocks: int
    tiers: tuple[TierFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What was found in caches and survived since the start; see ModelTopology in admin.proto."""

    model: str
    num_queried_tokens: int
    found_tokens: dict[str, int]
    num_lost_workers: int
    num_requeued_sequences: int
    num_preemptions: int


@dataclass(frozen=True, slots=True)
class SchedulerFacts:
    """One scheduler of a pair; `state` is active, standby or lost."""

    address: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTopology:
    """One cell; see CellTopology in admin.proto."""

    generation: int
    handoff: str
    workers: tuple[WorkerFacts, ...]
    pairs: tuple[PairFacts, ...]
    warnings: tuple[str, ...]
    stores: tuple[StoreFacts, ...] = ()
    kvstore_copies: int = 0
    schedulers: tuple[SchedulerFacts, ...] = ()
    models: tuple[ModelFacts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """One probe; see ProbeResult in admin.proto."""

    prefill: str
    decode: str
    num_blocks: int
    num_bytes: int
    transport: str | None
    is_equal: bool
    seconds: float
    error: str | None


@dataclass(frozen=True, slots=True)
class CellSelfTest:
    """The probes of one cell, and the problems found."""

    generation: int
    probes: tuple[ProbeFacts, ...]
    problems: tuple[str, ...]


async def topology(address: str, *, api_key: str | None = None) -> list[CellTopology]:
    """Return the workers and pairs of every cell that answers at `address`.

    Args:
        address: gRPC address of a frontend or scheduler.
        api_key: Key for frontends that require one.
    """
    async with admin_stub(address) as stub:
        response = await stub.Topology(
            admin_pb2.TopologyRequest(),
            timeout=TIMEOUT_SECONDS + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [_cell(cell) for cell in response.cells]


async def set_roles(
    address: str, worker: str, roles: Sequence[str], *, api_key: str | None = None
) -> WorkerFacts:
    """Change the roles of a worker; return its new state.

    Args:
        address: gRPC address of a frontend or scheduler.
        worker: Id of the worker in hex, or the beginning of the id.
        roles: Names from ROLES, at least one.
        api_key: Key for frontends that require one.

    Raises:
        InvalidRequestError: No worker or several match, or `roles` is empty.
    """
    request = admin_pb2.SetRolesRequest(worker=worker, roles=[ROLES[role] for role in roles])
    async with admin_stub(address) as stub:
        response = await stub.SetRoles(
            request,
            timeout=TIMEOUT_SECONDS + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return worker_facts(response.worker)


async def self_test(
    address: str, *, timeout_seconds: float = 10.0, api_key: str | None = None
) -> list[CellSelfTest]:
    """Move blocks between the workers of every pair, and return the results.

    Args:
        address: gRPC address of a frontend or scheduler.
        timeout_seconds: Longest time for all probes.
        api_key: Key for frontends that require one.
    """
    request = admin_pb2.SelfTestRequest(timeout_ms=int(timeout_seconds * 1000))
    async with admin_stub(address) as stub:
        response = await stub.SelfTest(
            request,
            timeout=timeout_seconds + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [_test(cell) for cell in response.cells]


def _cell(cell: admin_pb2.CellTopology) -> CellTopology:
    return CellTopology(
        generation=cell.generation,
        handoff=cell.handoff,
        workers=tuple(map(worker_facts, cell.workers)),
        pairs=tuple(map(_pair, cell.pairs)),
        warnings=tuple(cell.warnings),
        stores=tuple(map(_store, cell.stores)),
        kvstore_copies=cell.kvstore_copies,
        schedulers=tuple(
            SchedulerFacts(one.address, _STATES.get(one.state, "unknown"))
            for one in cell.schedulers
        ),
        models=tuple(map(_model, cell.models)),
    )


def _store(store: admin_pb2.StoreTopology) -> StoreFacts:
    tiers = (
        TierFacts(
            tier=one.tier,
            num_blocks=one.num_blocks,
            used_bytes=one.used_bytes,
            capacity_bytes=one.capacity_bytes,
            fault=one.fault if one.HasField("fault") else None,
        )
        for one in store.tiers
    )
    return StoreFacts(store.address, store.is_up, store.num_blocks, tuple(tiers))


def _model(model: admin_pb2.ModelTopology) -> ModelFacts:
    return ModelFacts(
        model=model.model,
        num_queried_tokens=model.num_queried_tokens,
        found_tokens=dict(model.found_tokens),
        num_lost_workers=model.num_lost_workers,
        num_requeued_sequences=model.num_requeued_sequences,
        num_preemptions=model.num_preemptions,
    )


def worker_facts(worker: admin_pb2.WorkerTopology) -> WorkerFacts:
    """Return a worker of an answer."""
    sleep = sleep_from_message(worker.sleep)
    return WorkerFacts(
        worker=worker.worker,
        model=worker.model,
        roles=tuple(_ROLE_NAMES.get(role, "unknown") for role in worker.roles),
        is_draining=worker.is_draining,
        kv_endpoint=worker.kv_endpoint,
        kv_transports=tuple(_transports(worker.kv_transports)),
        layout=worker.layout,
        num_running=worker.num_running,
        num_waiting=worker.num_waiting,
        max_num_seqs=worker.max_num_seqs,
        memory=sleep.state.value,
        sleep_level=sleep.level,
        sleep_num_bytes=sleep.num_bytes,
        sleep_error=None if sleep.error is None else sleep.error.message,
        weights_version=version_from_message(worker.weights).shown,
    )


def _pair(pair: admin_pb2.PairTopology) -> PairFacts:
    return PairFacts(
        prefill=pair.prefill,
        decode=pair.decode,
        refusal=pair.refusal or None,
        transport=_transport(pair.transport) if pair.HasField("transport") else None,
        bytes_per_second=pair.bytes_per_second if pair.HasField("bytes_per_second") else None,
        num_transfers=pair.num_transfers,
        num_failures=pair.num_failures,
    )


def _test(cell: admin_pb2.CellSelfTest) -> CellSelfTest:
    probes = tuple(
        ProbeFacts(
            prefill=probe.prefill,
            decode=probe.decode,
            num_blocks=probe.num_blocks,
            num_bytes=probe.num_bytes,
            transport=_transport(probe.transport) if probe.HasField("transport") else None,
            is_equal=probe.is_equal,
            seconds=probe.time_us / 1e6,
            error=probe.error or None,
        )
        for probe in cell.probes
    )
    return CellSelfTest(cell.generation, probes, tuple(cell.problems))


def _transport(number: int) -> str:
    transport = transport_from_message(number)
    return "unknown" if transport is None else transport.value


def _transports(numbers: Iterable[int]) -> Iterable[str]:
    return map(_transport, numbers)
