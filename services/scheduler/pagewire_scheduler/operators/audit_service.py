"""Collects the audit of the cell: the core's own audit and the answers of attached peers."""

import asyncio
from collections.abc import Iterable
from typing import Any

from pagewire_protos.common.v1 import audit_pb2
from pagewire_protos.scheduler.v1 import worker_attach_pb2
from pagewire_scheduler.core.audit import CoreReport, audit, held_slots, running_slots
from pagewire_scheduler.links.frontend_link import FrontendLink
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.worker_link import WorkerLink
from pagewire_shared.convert import finding
from pagewire_shared.identity.ids import short
from pagewire_shared.kv.arrays import unpack_u32

DEFAULT_TIMEOUT_SECONDS = 2.0


class Auditor:
    """Queries every peer and compares the answers with the core."""

    def __init__(self, loop: StepLoop) -> None:
        self._loop = loop
        self._num_queries = 0

    async def collect(
        self, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    ) -> audit_pb2.AuditReport:
        """Return the report; peers that do not answer in time are findings."""
        self._num_queries += 1
        core = self._loop.core
        before = {i: _slots(self._loop, i) for i in core.workers}
        workers = [w for w in self._loop.workers.values() if isinstance(w, WorkerLink)]
        frontends = [f for f in self._loop.frontends.values() if isinstance(f, FrontendLink)]
        from_workers = [worker.ask_audit(self._num_queries) for worker in workers]
        from_frontends = [frontend.ask_audit(self._num_queries) for frontend in frontends]
        futures: list[asyncio.Future[Any]] = [*from_workers, *from_frontends]
        if futures:
            await asyncio.wait(futures, timeout=timeout_seconds)
        own = audit(core)
        report = audit_pb2.AuditReport(
            generation=self._loop.generation.number, scheduler=_scheduler_audit(own)
        )
        report.findings.extend(report.scheduler.findings)
        for worker, reply in zip(workers, from_workers, strict=True):
            process = f"worker {short(worker.info.worker_id)}"
            if not _is_answered(reply):
                report.findings.append(finding(process, "no_answer", "it did not answer in time"))
                continue
            worker_id = worker.info.worker_id
            report.workers.append(reply.result().audit)
            report.findings.extend(reply.result().audit.findings)
            after = _slots(self._loop, worker_id)
            report.findings.extend(_compare(process, reply.result(), before[worker_id], after))
        for frontend, answer in zip(frontends, from_frontends, strict=True):
            process = f"frontend {short(frontend.info.frontend_id)}"
            if _is_answered(answer):
                report.frontends.append(answer.result())
                report.findings.extend(answer.result().findings)
            else:
                report.findings.append(finding(process, "no_answer", "it did not answer in time"))
        for future in futures:
            future.cancel()
        return report


_Slots = tuple[set[int], set[int]]


def _slots(loop: StepLoop, worker_id: bytes) -> _Slots:
    """Return the slots that a worker may hold, and the slots that it must hold."""
    worker = loop.core.workers.get(worker_id)
    return (held_slots(worker), running_slots(worker)) if worker is not None else (set(), set())


def _compare(
    process: str, reply: worker_attach_pb2.WorkerAuditReply, before: _Slots, after: _Slots
) -> Iterable[audit_pb2.AuditFinding]:
    """Compare with the slots at the query and at the answer: steps pass in between."""
    slots = set(unpack_u32(reply.slots))
    for slot in sorted(slots - before[0] - after[0]):
        yield finding(process, "leaked_slot", f"slot {slot} is held, but by no request")
    for slot in sorted((before[1] & after[1]) - slots):
        yield finding(process, "lost_slot", f"slot {slot} should run, but is not held")


def _is_answered(future: "asyncio.Future[Any]") -> bool:
    return future.done() and not future.cancelled()


def _scheduler_audit(report: CoreReport) -> audit_pb2.SchedulerAudit:
    return audit_pb2.SchedulerAudit(
        num_requests=report.num_requests,
        num_waiting=report.num_waiting,
        num_running=report.num_running,
        num_preemptions=report.counts.num_preemptions,
        num_rejected=report.counts.num_rejected,
        num_dropped_results=report.counts.num_dropped_results,
        pools=[
            audit_pb2.PoolAudit(
                worker=pool.worker_id.hex(),
                num_blocks=pool.num_blocks,
                num_held=pool.num_held,
                num_cached=pool.num_cached,
                num_free=pool.num_free,
                num_slots=pool.num_slots,
                num_steps_in_flight=pool.num_steps_in_flight,
                num_computed_tokens=pool.counts.num_computed_tokens,
                num_queried_tokens=pool.counts.num_queried_tokens,
                num_hit_tokens=pool.counts.num_hit_tokens,
                groups=[
                    audit_pb2.GroupAudit(
                        window=group.window, num_held=group.num_held, most_held=group.most_held
                    )
                    for group in pool.groups
                ],
            )
            for pool in report.pools
        ],
        findings=[finding("scheduler", f.kind, f.detail) for f in report.findings],
    )
