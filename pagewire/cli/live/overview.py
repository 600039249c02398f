"""Workers, queues, KV blocks and streams of a deployment, from one audit and one topology."""

import asyncio
from dataclasses import dataclass

from pagewire.client.admin_client import CellReport, FrontendReport, PoolReport, audit
from pagewire.client.topology_client import CellTopology, SchedulerFacts, WorkerFacts, topology


@dataclass(frozen=True, slots=True)
class WorkerOverview:
    """One worker and its KV blocks; `pool` is missing if it attached between the two answers."""

    facts: WorkerFacts
    pool: PoolReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOverview:
    """One cell. Requests and sequences are those of the scheduler; `problems` are findings of the
    audit and warnings of the topology, one sentence each; `schedulers` are those of a pair."""

    generation: int
    num_requests: int
    num_waiting: int
    num_running: int
    workers: tuple[WorkerOverview, ...]
    frontends: tuple[FrontendReport, ...]
    problems: tuple[str, ...]
    schedulers: tuple[SchedulerFacts, ...] = ()


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
    )
