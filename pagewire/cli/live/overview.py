"""Workers, queues, KV blocks, cache hits, survived faults and streams of a deployment, from one
audit and one topology."""

import asyncio
from dataclasses import dataclass

from pagewire.client.admin_client import CellReport, FrontendReport, PoolReport, audit
from pagewire.client.topology_client import (
    CellTopology,
    ModelFacts,
    SchedulerFacts,
    StoreFacts,
    WorkerFacts,
    topology,
)
from pagewire_shared.kv.tier import WORKER_TIER


@dataclass(frozen=True, slots=True)
class WorkerOverview:
    """One worker and its KV blocks; `pool` is missing if it attached between the two answers."""

    facts: WorkerFacts
    pool: PoolReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOverview:
    """One place of KV blocks: the tier of a store, or the memory of all workers together.

    Attributes:
        store: Address of the store; "" for the workers.
        num_blocks: Blocks with content.
        share: Part of the place that they fill, from 0 to 1; None where it is not known.
        used_bytes, capacity_bytes: None for workers.
        fault: Why it does not work; None while it does.
    """

    tier: str
    store: str
    num_blocks: int
    share: float | None
    used_bytes: int | None = None
    capacity_bytes: int | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOverview:
    """One cell. Requests and sequences are those of the scheduler; `problems` are findings of the
    audit and warnings of the topology, one sentence each; `schedulers` are those of a pair;
    `num_resumed` requests went on after a lost scheduler."""

    generation: int
    num_requests: int
    num_waiting: int
    num_running: int
    workers: tuple[WorkerOverview, ...]
    frontends: tuple[FrontendReport, ...]
    problems: tuple[str, ...]
    schedulers: tuple[SchedulerFacts, ...] = ()
    tiers: tuple[TierOverview, ...] = ()
    models: tuple[ModelFacts, ...] = ()
    num_resumed: int = 0


async def overview(address: str, *, api_key: str | None = None) -> list[CellOverview]:
    """Return the cells that answer at `address`, a frontend or a scheduler, in both answers."""
    reports, cells = await asyncio.gather(
        audit(address, api_key=api_key), topology(address, api_key=api_key)
    )
    by_generation = {report.generation: report for report in reports}
    return [
        _joined(cell, by_generation[cell.generation])
        for cell in cells
        if cell.generation in by_generation
    ]


def _joined(cell: CellTopology, report: CellReport) -> CellOverview:
    pools = {pool.worker: pool for pool in report.pools}
    findings = (f"{one.kind} in {one.process}: {one.detail}" for one in report.findings)
    return CellOverview(
        generation=cell.generation,
        num_requests=report.num_requests,
        num_waiting=report.num_waiting,
        num_running=report.num_running,
        workers=tuple(WorkerOverview(one, pools.get(one.worker)) for one in cell.workers),
        frontends=report.frontends,
        problems=(*findings, *cell.warnings),
        schedulers=cell.schedulers,
        tiers=(
            _workers_tier(report.pools),
            *(one for store in cell.stores for one in _tiers(store)),
        ),
        models=cell.models,
        num_resumed=sum(one.num_resumed for one in report.frontends),
    )


def _workers_tier(pools: tuple[PoolReport, ...]) -> TierOverview:
    num_blocks = sum(pool.num_held + pool.num_cached for pool in pools)
    return TierOverview(
        tier=WORKER_TIER,
        store="",
        num_blocks=num_blocks,
        share=_share(num_blocks, sum(pool.num_blocks for pool in pools)),
    )


def _tiers(store: StoreFacts) -> list[TierOverview]:
    """Return the tiers of a store; of one that did not say, what it announced in all."""
    if not store.tiers:
        return [
            TierOverview(
                tier="any",
                store=store.address,
                num_blocks=store.num_blocks,
                share=None,
                fault=None if store.is_up else "out of reach",
            )
        ]
    return [
        TierOverview(
            tier=one.tier,
            store=store.address,
            num_blocks=one.num_blocks,
            share=_share(one.used_bytes, one.capacity_bytes),
            used_bytes=one.used_bytes,
            capacity_bytes=one.capacity_bytes,
            fault=one.fault,
        )
        for one in store.tiers
    ]


def _share(used: int, capacity: int) -> float | None:
    return used / capacity if capacity else None
