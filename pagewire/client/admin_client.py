"""Client of the AdminService: audit of a deployment and reset of its prefix cache."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc.aio

from pagewire.client.call_errors import call_error
from pagewire.client.channel import open_channel
from pagewire.client.endpoint import grpc_address
from pagewire.client.target import parse_target
from pagewire_protos.common.v1 import audit_pb2
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc

ANSWER_MARGIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CacheGroupReport:
    """Blocks that running sequences hold in one cache group of a worker, and most by one of them.

    A group without `window` reads all positions.
    """

    window: int | None
    num_held: int
    most_held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """One worker's block pool, according to the scheduler's tables."""

    worker: str
    num_blocks: int
    num_held: int
    num_cached: int
    num_free: int
    num_slots: int
    num_steps_in_flight: int
    groups: tuple[CacheGroupReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """Resources of one worker, as the worker reports them."""

    worker: str
    num_slots: int
    num_blocks_in_tables: int
    num_named_blocks: int
    num_steps_queued: int


@dataclass(frozen=True, slots=True)
class FrontendReport:
    """Resources of one frontend, as the frontend reports them."""

    frontend: str
    num_open_streams: int
    num_handles: int
    num_resumed: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """A leak or contradiction."""

    process: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellReport:
    """One cell: the scheduler's view and its peers' answers."""

    generation: int
    num_requests: int
    num_waiting: int
    num_running: int
    pools: tuple[PoolReport, ...]
    workers: tuple[WorkerReport, ...]
    frontends: tuple[FrontendReport, ...]
    findings: tuple[Finding, ...]

    @property
    def is_idle(self) -> bool:
        """Whether no process has a request, a referenced block, or a slot in use."""
        counts = [self.num_requests, self.num_waiting, self.num_running]
        counts += [p.num_held + p.num_slots + p.num_steps_in_flight for p in self.pools]
        counts += [w.num_slots + w.num_blocks_in_tables + w.num_steps_queued for w in self.workers]
        counts += [f.num_open_streams + f.num_handles for f in self.frontends]
        return not any(counts)


async def audit(
    address: str, *, timeout_seconds: float = 2.0, api_key: str | None = None
) -> list[CellReport]:
    """Return one report per cell that answers at `address`.

    Args:
        address: gRPC address of a frontend or scheduler.
        timeout_seconds: Longest time for the peers to answer.
        api_key: Key for frontends that require one.
    """
    request = admin_pb2.AuditRequest(timeout_ms=int(timeout_seconds * 1000))
    async with admin_stub(address) as stub:
        response = await stub.Audit(
            request,
            timeout=timeout_seconds + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return [_cell(report) for report in response.reports]


async def reset_prefix_cache(
    address: str,
    *,
    model: str | None = None,
    timeout_seconds: float = 5.0,
    api_key: str | None = None,
) -> int:
    """Drop the prefix caches of the cells at `address`; return the number of blocks.

    Args:
        address: gRPC address of a frontend or scheduler.
        model: Served name; None for all models.
        timeout_seconds: Longest time for the cells to answer.
        api_key: Key for frontends that require one.
    """
    request = admin_pb2.ResetPrefixCacheRequest(model=model)
    async with admin_stub(address) as stub:
        response = await stub.ResetPrefixCache(
            request,
            timeout=timeout_seconds + ANSWER_MARGIN_SECONDS,
            metadata=key_metadata(api_key),
        )
    return int(response.num_blocks)


def key_metadata(api_key: str | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that carry the API key."""
    return () if api_key is None else (("authorization", f"Bearer {api_key}"),)


@asynccontextmanager
async def admin_stub(address: str) -> AsyncIterator[admin_pb2_grpc.AdminServiceStub]:
    """Yield a stub; errors of its calls become exceptions of the exception tree."""
    # In a thread, because it asks what speaks there.
    target = await asyncio.to_thread(grpc_address, address)
    async with open_channel(parse_target(target, "--server")) as channel:
        try:
            yield admin_pb2_grpc.AdminServiceStub(channel)
        except grpc.aio.AioRpcError as error:
            raise call_error(error, target) from None


def _cell(report: audit_pb2.AuditReport) -> CellReport:
    scheduler = report.scheduler
    found = [*report.findings, *scheduler.findings]
    for worker in report.workers:
        found += worker.findings
    for frontend in report.frontends:
        found += frontend.findings
    findings = {(f.process, f.kind, f.detail): None for f in found}
    return CellReport(
        generation=report.generation,
        num_requests=scheduler.num_requests,
        num_waiting=scheduler.num_waiting,
        num_running=scheduler.num_running,
        pools=tuple(
            PoolReport(
                worker=p.worker,
                num_blocks=p.num_blocks,
                num_held=p.num_held,
                num_cached=p.num_cached,
                num_free=p.num_free,
                num_slots=p.num_slots,
                num_steps_in_flight=p.num_steps_in_flight,
                groups=tuple(
                    CacheGroupReport(
                        g.window if g.HasField("window") else None, g.num_held, g.most_held
                    )
                    for g in p.groups
                ),
            )
            for p in scheduler.pools
        ),
        workers=tuple(
            WorkerReport(
                worker=w.worker,
                num_slots=w.num_slots,
                num_blocks_in_tables=w.num_blocks_in_tables,
                num_named_blocks=w.num_named_blocks,
                num_steps_queued=w.num_steps_queued,
            )
            for w in report.workers
        ),
        frontends=tuple(
            FrontendReport(f.frontend, f.num_open_streams, f.num_handles, f.num_resumed)
            for f in report.frontends
        ),
        findings=tuple(Finding(*key) for key in findings),
    )
