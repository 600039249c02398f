"""Which peers the scheduler takes, and what it finds out about them, over real sockets."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from contract.scheduler_peers import (
    RunningScheduler,
    attached,
    eventually,
    frontend_of,
    quiet,
    running_scheduler,
)
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_worker import ScriptedWorker

from pagewire.client.admin_client import reset_prefix_cache
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as fa
from pagewire_shared.errors import (
    ModelNotFoundError,
    PeerRefusedError,
    UnavailableError,
    WireError,
)


async def test_misfits_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address)),
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        with pytest.raises(PeerRefusedError, match="max_model_len"):
            await ScriptedWorker(scheduler.address, max_model_len=99).run()
        with pytest.raises(PeerRefusedError, match="tokenizer"):
            await ScriptedWorker(scheduler.address, tokenizer=b"x" * 32).run()
        stranger = ScriptedFrontend(scheduler.address, tokenizers={"tiny": b"x" * 32})
        with pytest.raises(PeerRefusedError, match="tokenizer"):
            await stranger.attach()
        await stranger.detach()


async def test_a_starting_scheduler_takes_the_next_generation(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler:
        highest = scheduler.loop.generation.number + 10_000
        worker = ScriptedWorker(scheduler.address, highest_generation=highest)
        async with attached(worker):
            await eventually(lambda: worker.welcome is not None)
            async with frontend_of(scheduler) as frontend:
                await frontend.submit(1, [3], max_tokens=2)
                await frontend.until(lambda: (1, 0) in frontend.finished)
            assert worker.plans[0].generation == highest + 1


async def test_a_worker_without_progress_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagewire_scheduler.peers.liveness.MIN_SILENCE_SECONDS", 0.3)
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        stuck = ScriptedWorker(scheduler.address)
        task = asyncio.create_task(stuck.run())
        await frontend.submit(1, [3], max_tokens=2)
        with pytest.raises(UnavailableError, match="no progress"):
            await task
        async with attached(ScriptedWorker(scheduler.address)):
            await frontend.until(lambda: (1, 0) in frontend.finished)


async def test_a_stream_must_begin_with_a_hello(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        await frontend.send(fa.AttachFrontendRequest(hello=fa.FrontendHello()))
        with pytest.raises(WireError, match="hello"):
            await frontend.until(lambda: False)


async def test_the_audit_is_clean_when_idle_and_sees_a_leak(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker):
            await frontend.submit(1, [3] * 9, max_tokens=5)
            await frontend.until(lambda: (1, 0) in frontend.finished)
            await quiet(scheduler)
            report = await _audit(scheduler)
            assert not report.findings
            assert report.scheduler.num_requests == 0
            (pool,) = report.scheduler.pools
            assert (pool.num_held, pool.num_slots) == (0, 0)
            assert pool.num_cached == 3
            assert len(report.workers) == len(report.frontends) == 1
            worker.leaks.add(5)
            scheduler.loop.core.workers[worker.worker_id].pool.allocate()
            kinds = {finding.kind for finding in (await _audit(scheduler)).findings}
            assert kinds == {"leaked_slot", "leaked_block", "misplaced_block"}


async def test_a_frontend_may_ask_for_the_audit(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        query = fa.AuditQuery(query_id=9)
        await frontend.send(fa.AttachFrontendRequest(audit_query=query))
        await frontend.until(lambda: bool(frontend.reports))
        assert not frontend.reports[0].findings


async def test_a_peer_that_does_not_answer_is_a_finding(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address, is_mute=True)
        async with attached(worker):
            await frontend.until(lambda: frontend.models == ["tiny"])
            report = await _audit(scheduler, timeout_ms=200)
            assert [finding.kind for finding in report.findings] == ["no_answer"]


async def test_a_reset_forgets_what_a_model_has_cached(tmp_path: Path) -> None:
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address)),
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        await frontend.submit(1, list(range(1, 12)), max_tokens=6)
        await frontend.until(lambda: (1, 0) in frontend.finished)
        await quiet(scheduler)
        with pytest.raises(ModelNotFoundError, match="no worker serves 'nope'") as caught:
            await reset_prefix_cache(scheduler.address, model="nope")
        assert caught.value.field == "model"
        assert await reset_prefix_cache(scheduler.address, model="tiny") > 0
        assert await reset_prefix_cache(scheduler.address) == 0


async def test_heartbeats_go_to_frontends(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        await frontend.until(lambda: frontend.num_heartbeats > 0)


async def _audit(scheduler: RunningScheduler, timeout_ms: int = 2000) -> object:
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        response = await stub.Audit(admin_pb2.AuditRequest(timeout_ms=timeout_ms))
    return response.reports[0]
