"""How much a scheduler's process takes on over real streams, under its default limits, and that one
tenant's load keeps nobody else waiting."""

from pathlib import Path

import pytest
from contract.scheduler_peers import attached, frontend_of, quiet, running_scheduler
from contract.scripted_worker import ScriptedWorker, expected

CONTEXT = 131_072
REST = CONTEXT - 3
"""What a frontend makes of an absent `max_tokens` behind a prompt of three tokens."""


@pytest.mark.parametrize(("logprobs", "count"), [({}, 2048), ({"logprobs": 5}, 1000)])
async def test_a_long_context_under_default_limits(tmp_path: Path, logprobs, count: int) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address, max_model_len=CONTEXT, num_blocks=40_000)
        async with attached(worker):
            await frontend.until(lambda: frontend.models == ["tiny"])
            for handle in range(1, count + 1):
                await frontend.submit(handle, [1, 2, 3], max_tokens=REST, **logprobs)
            # It comes behind all of them on one stream.
            await frontend.submit(count + 1, [1, 2, 3], max_tokens=4, tenant="other")
            await frontend.until(lambda: (count + 1, 0) in frontend.finished, timeout=60.0)
            assert frontend.tokens[count + 1, 0] == expected([1, 2, 3], 4)
            assert not frontend.rejected
            assert not any(handle <= count for handle, _ in frontend.finished)


async def test_a_tenant_that_has_filled_the_queue_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with (
        running_scheduler(tmp_path, max_num_waiting=40) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address)),
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        for handle in range(1, 100):
            await frontend.submit(handle, [1, 2], max_tokens=200, tenant="greedy")
        await frontend.until(lambda: 99 in frontend.rejected)
        await frontend.submit(100, [3, 4], max_tokens=4, tenant="modest")
        await frontend.until(lambda: (100, 0) in frontend.finished)
        assert frontend.tokens[100, 0] == expected([3, 4], 4)
        assert 100 not in frontend.rejected
        for handle in range(1, 100):
            if (handle, 0) not in frontend.finished and handle not in frontend.rejected:
                await frontend.abort(handle)
        await quiet(scheduler)


async def test_a_tenant_with_long_prompts_under_way_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running_scheduler(tmp_path) as scheduler, frontend_of(scheduler) as frontend:
        worker = ScriptedWorker(scheduler.address, max_model_len=CONTEXT, num_blocks=40_000)
        async with attached(worker):
            await frontend.until(lambda: frontend.models == ["tiny"])
            # A step has 32 tokens, so the first of these takes 3,000 steps.
            for handle in range(1, 9):
                await frontend.submit(handle, [handle] * 96_000, max_tokens=1, tenant="greedy")
            await frontend.until(lambda: len(worker.plans) > 2)
            await frontend.submit(100, [3, 4], max_tokens=4, tenant="modest")
            await frontend.until(lambda: (100, 0) in frontend.finished, timeout=60.0)
            assert frontend.tokens[100, 0] == expected([3, 4], 4)
            assert frontend.finished.keys() == {(100, 0)}
            for handle in range(1, 9):
                await frontend.abort(handle)
            await quiet(scheduler)


async def test_each_of_several_submits_in_one_message_is_accepted_or_refused(
    tmp_path: Path,
) -> None:
    async with (
        running_scheduler(tmp_path) as scheduler,
        frontend_of(scheduler) as frontend,
        attached(ScriptedWorker(scheduler.address)),
    ):
        await frontend.until(lambda: frontend.models == ["tiny"])
        await frontend.submit_all({1: [1, 2], 2: [], 3: [3, 4]}, max_tokens=4)
        await frontend.until(lambda: len(frontend.finished) == 2 and 2 in frontend.rejected)
        assert frontend.tokens[1, 0] == expected([1, 2], 4)
        assert frontend.tokens[3, 0] == expected([3, 4], 4)
        assert frontend.rejected.keys() == {2}
        await quiet(scheduler)
