"""Low-priority work of the model thread: between jobs, and again and again while there is none."""

import asyncio
import threading

import pytest

from pagewire_worker.runner.model_thread import MAX_QUEUED_JOBS, ModelThread


@pytest.fixture
async def thread():
    made = ModelThread(asyncio.get_running_loop())
    made.start()
    yield made
    await asyncio.to_thread(made.stop, 5)


async def test_it_has_one_turn_between_jobs_and_all_when_idle(thread):
    seen, left, release = [], [6], threading.Event()

    def turn(is_idle):
        seen.append("idle" if is_idle else "busy")
        left[0] -= 1
        return left[0] > 0

    first = thread.submit(release.wait)
    jobs = [thread.submit(lambda: seen.append("job")) for _ in range(3)]
    thread.add_low_priority(turn)
    release.set()
    await asyncio.gather(first, *jobs)
    async with asyncio.timeout(10):
        while left[0] > 0:
            await asyncio.sleep(0.005)
    assert seen == ["busy", "job", "busy", "job", "busy", "job", "idle", "idle", "idle"]


async def test_a_nudge_gives_it_a_turn(thread):
    turned = threading.Event()

    def turn(is_idle):
        turned.set()
        return False

    thread.add_low_priority(turn)
    thread.nudge()
    assert await asyncio.to_thread(turned.wait, 10)


async def test_a_nudge_is_not_needed_where_jobs_wait(thread):
    release = threading.Event()
    first = thread.submit(release.wait)
    for _ in range(MAX_QUEUED_JOBS + 10):
        thread.nudge()
    release.set()
    await first
