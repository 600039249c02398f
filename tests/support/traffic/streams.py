"""Streams of the public gRPC API, followed token by token with their positions checked."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from pagewire_protos.common.v1 import audit_pb2, sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc


@dataclass(slots=True)
class Stream:
    """One request: what came, what was wrong with it, and where the time of its choices went."""

    request: inference_pb2.CompleteRequest
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    reason: int = 0
    is_closed: bool = False
    num_resumes: int = 0
    num_recoveries: int = 0
    version: str = ""
    error: str = ""
    timelines: list[dict[str, Any]] = field(default_factory=list)

    async def follow(self, stub: "inference_pb2_grpc.InferenceServiceAsyncStub") -> None:
        """Read to the end; an error status or a gap ends up in `error`."""
        call = stub.Complete(self.request)
        try:
            async for response in call:
                self._take(response)
            trailer = dict(tuple(await call.trailing_metadata()))
            self.timelines = json.loads(trailer.get("pagewire-timeline", "[]"))
        except grpc.aio.AioRpcError as error:
            self.error = f"{error.code().name}: {error.details()}"
        except asyncio.CancelledError:
            self.error = "cancelled"
            raise

    def _take(self, response: inference_pb2.CompleteResponse) -> None:
        event = response.WhichOneof("event")
        if event == "delta":
            if response.delta.first_position != len(self.token_ids):
                self.error = f"position {response.delta.first_position} after {len(self.token_ids)}"
            self.token_ids.extend(response.delta.token_ids)
            self.text += response.delta.text
        elif event == "finished":
            self.text += response.finished.text
            self.reason = response.finished.reason
        elif event == "closed":
            self.is_closed = True
            self.version = response.closed.usage.weights_version
            self.num_resumes = response.closed.timings.num_resumes
            self.num_recoveries = response.closed.timings.num_recoveries


def completion(
    model: str, prompt: Sequence[int], max_tokens: int, **sampling: object
) -> inference_pb2.CompleteRequest:
    """Return a request for `max_tokens` tokens that never stops earlier; greedy unless told
    otherwise."""
    fields: dict[str, object] = {"temperature": 0.0, "ignore_eos": True, **sampling}
    return inference_pb2.CompleteRequest(
        model=model,
        token_ids=inference_pb2.TokenIds(ids=prompt),
        options=inference_pb2.GenerationOptions(
            sampling=sampling_pb2.SamplingParams(max_tokens=max_tokens, **fields)  # type: ignore[arg-type]
        ),
    )


async def follow_all(
    address: str, requests: Sequence[inference_pb2.CompleteRequest]
) -> list[Stream]:
    """Run all requests at once and return their streams when all have ended."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests]
        await asyncio.gather(*(stream.follow(stub) for stream in streams))
    return streams


async def audit(address: str) -> audit_pb2.AuditReport:
    """Return the audit of the only cell."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        response = await stub.Audit(admin_pb2.AuditRequest(timeout_ms=5000))
    assert len(response.reports) == 1
    return response.reports[0]


def leaks(report: audit_pb2.AuditReport, num_workers: int) -> list[str]:
    """Return everything in `report` that an idle cell must not have."""
    found = [f"{f.process}: {f.kind}: {f.detail}" for f in report.findings]
    found += [f"{f.kind}: {f.detail}" for f in report.scheduler.findings]
    scheduler = report.scheduler
    for name in ("num_requests", "num_waiting", "num_running"):
        if getattr(scheduler, name):
            found.append(f"scheduler {name} = {getattr(scheduler, name)}")
    for pool in scheduler.pools:
        for name in ("num_held", "num_slots", "num_steps_in_flight"):
            if getattr(pool, name):
                found.append(f"pool {pool.worker} {name} = {getattr(pool, name)}")
        if pool.num_cached + pool.num_free != pool.num_blocks:
            found.append(f"pool {pool.worker} does not add up: {pool}")
    for worker in report.workers:
        for name in ("num_slots", "num_blocks_in_tables", "num_steps_queued"):
            if getattr(worker, name):
                found.append(f"worker {worker.worker} {name} = {getattr(worker, name)}")
        found += [f"worker {worker.worker}: {f.kind}: {f.detail}" for f in worker.findings]
    for frontend in report.frontends:
        for name in ("num_open_streams", "num_handles"):
            if getattr(frontend, name):
                found.append(f"frontend {name} = {getattr(frontend, name)}")
        found += [f"frontend: {f.kind}: {f.detail}" for f in frontend.findings]
    if len(report.workers) != num_workers or len(scheduler.pools) != num_workers:
        found.append(f"{len(report.workers)} workers and {len(scheduler.pools)} pools answered")
    if not report.frontends:
        found.append("no frontend answered")
    return found


async def eventually_clean(address: str, num_workers: int, timeout_seconds: float = 20.0) -> None:
    """Wait until the audit shows an idle cell without leaks; fail with what is left otherwise."""
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    while True:
        try:
            found = leaks(await audit(address), num_workers)
        except grpc.aio.AioRpcError as error:
            found = [f"audit failed: {error.code().name}: {error.details()}"]
        if not found:
            return
        assert asyncio.get_running_loop().time() < deadline, "\n".join(found)
        await asyncio.sleep(0.2)
