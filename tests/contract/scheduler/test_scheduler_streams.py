"""The scheduler over real sockets, between scripted workers and frontends."""

from pathlib import Path

import pytest
from contract.scheduler_peers import (
    attached,
    eventually,
    frontend_of,
    quiet,
    running_scheduler,
)
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_worker import ScriptedWorker, expected

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as fa
from pagewire_scheduler.core.queueing.losses import MAX_LOSSES
from pagewire_shared.kv.arrays import pack_u32, unpack_u32


@pytest.mark.parametrize("steps_in_flight", [1, 2])
async def test_many_requests_get_their_tokens(tmp_path: Path, steps_in_flight: int) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address, steps_in_flight=steps_in_flight)
        async with attached(worker):
            prompts = {handle: [handle] * (handle * 5) for handle in range(1, 21)}
            for handle, prompt in prompts.items():
                await frontend.submit(handle, prompt, max_tokens=9)
            await frontend.until(lambda: len(frontend.finished) == 20)
            for handle, prompt in prompts.items():
                assert frontend.tokens[handle, 0] == expected(prompt, 9)
            ends = {end.reason for end in frontend.finished.values()}
            assert ends == {sampling_pb2.FINISH_REASON_LENGTH}
            await quiet(scheduler)
            assert not worker.sequences


async def test_a_stop_token_is_emitted_and_named(tmp_path: Path) -> None:
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address)),
    ):
        tokens = expected([5, 6], 20)
        await frontend.submit(1, [5, 6], max_tokens=20, stop_token_ids=[tokens[3]])
        await frontend.submit(2, [5, 6], max_tokens=20, eos_token_ids=pack_u32([tokens[5]]))
        await frontend.until(lambda: len(frontend.finished) == 2)
        assert frontend.tokens[1, 0] == tokens[:4]
        assert frontend.finished[1, 0].stop_token_id == tokens[3]
        assert frontend.tokens[2, 0] == tokens[:6]
        assert not frontend.finished[2, 0].HasField("stop_token_id")
        assert frontend.finished[2, 0].reason == sampling_pb2.FINISH_REASON_STOP


async def test_a_request_waits_for_a_worker_and_survives_its_death(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        await frontend.submit(1, [1, 2, 3], max_tokens=200)
        first = ScriptedWorker(scheduler.address)
        async with attached(first):
            await frontend.until(lambda: len(frontend.tokens[1, 0]) > 3)
        await frontend.until(lambda: frontend.models == [])
        async with attached(ScriptedWorker(scheduler.address)):
            await frontend.until(lambda: bool(frontend.finished))
        assert frontend.tokens[1, 0] == expected([1, 2, 3], 200)


async def test_a_request_that_ends_every_worker_fails_and_others_go_on(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        await frontend.submit(1, [1, 2, 3], max_tokens=9)
        await frontend.submit(2, [4, 5, 6], max_tokens=9)
        for _ in range(MAX_LOSSES):
            worker = ScriptedWorker(scheduler.address)
            async with attached(worker, is_open=False):
                await eventually(lambda worker=worker: bool(worker.plans))
            await frontend.until(lambda: frontend.models == [])
        await frontend.until(lambda: bool(frontend.finished))
        end = frontend.finished[1, 0]
        assert end.reason == sampling_pb2.FINISH_REASON_FAILED
        assert "workers were lost" in end.error.message
        async with attached(ScriptedWorker(scheduler.address)):
            await frontend.until(lambda: len(frontend.finished) == 2)
        assert frontend.tokens[2, 0] == expected([4, 5, 6], 9)


async def test_two_workers_share_the_load(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        one, two = ScriptedWorker(scheduler.address), ScriptedWorker(scheduler.address)
        async with attached(one), attached(two):
            await eventually(lambda: len(scheduler.loop.workers) == 2)
            for handle in range(1, 9):
                await frontend.submit(handle, [handle, 9], max_tokens=30)
            await frontend.until(lambda: len(frontend.finished) == 8)
            assert one.plans
            assert two.plans


async def test_a_frontend_that_returns_is_resent_what_it_missed(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler:
        frontend = ScriptedFrontend(scheduler.address)
        await frontend.attach()
        assert frontend.welcome is not None
        generation = frontend.welcome.generation
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker):
            request_id = await frontend.submit(1, [4, 4], max_tokens=150)
            await frontend.submit(2, [5, 5], max_tokens=150)
            await frontend.until(lambda: len(frontend.tokens[1, 0]) > 2)
            await frontend.detach()
            held = len(frontend.tokens[1, 0])
            frontend.tokens[11, 0] = frontend.tokens[1, 0]
            frontend.held_generation = generation
            frontend.held = [
                fa.HeldRequest(
                    request_id=request_id, epoch=0, handle=11, next_positions=pack_u32([held])
                )
            ]
            await frontend.attach()
            assert frontend.welcome is not None
            assert unpack_u32(frontend.welcome.resumed_handles) == [11]
            await frontend.until(lambda: (11, 0) in frontend.finished)
            assert frontend.tokens[11, 0] == expected([4, 4], 150)
            # What it did not list is gone.
            assert not scheduler.loop.core.requests
        await frontend.detach()


async def test_after_the_lease_requests_are_gone(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path, lease_seconds=0.2) as scheduler:
        frontend = ScriptedFrontend(scheduler.address)
        await frontend.attach()
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker, is_open=False):
            await frontend.submit(1, [1] * 10, max_tokens=100)
            await eventually(lambda: bool(worker.plans))
            await frontend.detach()
            await eventually(lambda: not (scheduler.loop.core.requests))
            worker.gate.set()
            await quiet(scheduler)
            assert not worker.sequences


async def test_an_abort_reaches_the_worker(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address)
        async with attached(worker):
            await frontend.submit(1, [1, 2], max_tokens=250)
            await frontend.until(lambda: len(frontend.tokens[1, 0]) > 3)
            await frontend.abort(1)
            await eventually(lambda: not (scheduler.loop.core.requests or worker.sequences))


async def test_a_deadline_ends_a_waiting_request(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        await frontend.submit(1, [1, 2], remaining_ms=100)
        await frontend.until(lambda: (1, 0) in frontend.finished)
        end = frontend.finished[1, 0]
        assert end.reason == sampling_pb2.FINISH_REASON_ABORTED
        assert end.error.code == "deadline_exceeded"


@pytest.mark.parametrize(
    ("prompt", "fields", "code", "field"),
    [
        ([], {}, "invalid_value", "prompt"),
        ([1] * 256, {}, "context_length_exceeded", "prompt"),
        ([1000], {}, "invalid_value", "prompt"),
        ([1], {"adapter": b"x"}, "invalid_value", "adapter"),
        ([1], {"request_id": b"short"}, "invalid_value", "request_id"),
        ([1], {"max_tokens": 0}, "invalid_value", "max_tokens"),
    ],
)
async def test_bad_requests_are_rejected_with_the_field(
    tmp_path: Path, prompt: list[int], fields: dict[str, object], code: str, field: str
) -> None:
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address)),
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        await frontend.submit(3, prompt, **fields)
        await frontend.until(lambda: 3 in frontend.rejected)
        assert frontend.rejected[3].error.code == code
        assert frontend.rejected[3].error.field == field


async def test_too_many_waiting_are_shed(tmp_path: Path) -> None:
    async with (
        running_scheduler(tmp_path, max_num_waiting=2) as scheduler,
        frontend_of(scheduler) as frontend,
    ):
        for handle in (1, 2, 3):
            await frontend.submit(handle, [1])
        await frontend.until(lambda: 3 in frontend.rejected)
        error = frontend.rejected[3].error
        assert error.code == "rate_limit_exceeded"
        assert error.retry_after_ms > 0
