"""A call that blocks costs its deadline, and a bounded number of threads."""

import asyncio
import threading
import time

import pytest

from pagewire_shared.errors import DeadlineError, UnavailableError
from pagewire_worker.offload.blocking_calls import BlockingCalls


async def test_a_result_and_an_error_come_back() -> None:
    calls = BlockingCalls("it")
    assert await calls.run(lambda: 7, 5.0) == 7
    with pytest.raises(ZeroDivisionError):
        await calls.run(lambda: 1 // 0, 5.0)


async def test_a_stuck_call_ends_at_its_deadline_and_keeps_its_thread() -> None:
    calls, end = BlockingCalls("it", max_calls=2), threading.Event()
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(DeadlineError, match="it did not answer"):
            await calls.run(end.wait, 0.05)
    assert time.monotonic() - started < 2
    with pytest.raises(UnavailableError, match="2 calls do not end"):
        await calls.run(lambda: 7, 5.0)
    end.set()
    for _ in range(200):
        await asyncio.sleep(0.01)
        try:
            assert await calls.run(lambda: 7, 5.0) == 7
        except UnavailableError:
            continue
        return
    raise AssertionError("threads that have ended are free again")


async def test_a_call_whose_user_is_cancelled_goes_on() -> None:
    calls, end, seen = BlockingCalls("it"), threading.Event(), threading.Event()

    def call() -> None:
        end.wait(10)
        seen.set()

    task = asyncio.create_task(calls.run(call, 10.0))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    end.set()
    assert await asyncio.to_thread(seen.wait, 5)


async def test_the_event_loop_goes_on_meanwhile() -> None:
    calls, ticks = BlockingCalls("it"), 0
    future = calls.begin(lambda: time.sleep(0.2))
    while not future.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert ticks > 5
