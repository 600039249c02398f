"""What holds an event loop is found by name; a machine that is busy is not."""

import asyncio
import logging
import sys
import time

import pytest
import uvloop

from pagewire_shared.process.loop_watch import (
    LoopWatch,
    Sight,
    held_histogram,
    held_seconds,
    watched_loop,
)


def num_found():
    [metric] = held_histogram().collect()
    [count] = [item.value for item in metric.samples if item.name.endswith("_count")]
    return count


def work_for(seconds):
    """Take so much time of the processor, however long that lasts."""
    ends_at = time.thread_time() + seconds
    while time.thread_time() < ends_at:
        pass


async def until(is_true):
    async with asyncio.timeout(20):
        while not is_true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("hold", [work_for, time.sleep])
async def test_a_blocking_callback_is_named_and_counted(hold, caplog):
    if hold is time.sleep and sys.platform != "linux":
        pytest.skip("only Linux says how long a thread waited for a processor")

    async def handler_that_holds():
        hold(0.6)

    before = num_found()
    with caplog.at_level(logging.WARNING), watched_loop():
        await asyncio.sleep(0.1)
        # On a machine that is too busy one may go unseen.
        async with asyncio.timeout(30):
            while num_found() == before:
                await asyncio.create_task(handler_that_holds())
                await asyncio.sleep(0.1)
    assert "the event loop was held for" in caplog.text
    assert "handler_that_holds" in caplog.text


async def test_a_loop_that_turns_is_not_held(caplog):
    with caplog.at_level(logging.WARNING), watched_loop() as watch:
        for _ in range(30):
            work_for(0.001)
            await asyncio.sleep(0.005)
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    # Time of the processor was taken, but never for long in one piece.
    assert not [line for line in caplog.messages if "work_for" in line]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_loop_that_waits_has_no_beats_and_what_holds_it_then_is_found(run, monkeypatch):
    beats, beat = [], LoopWatch._beat

    def counted(watch):
        beats.append(watch)
        beat(watch)

    async def wait_and_hold():
        with watched_loop():
            await asyncio.sleep(0.5)
            num_idle = len(beats)
            async with asyncio.timeout(30):
                while num_found() == before:
                    work_for(0.3)
                    await asyncio.sleep(0.1)
        return num_idle

    before = num_found()
    monkeypatch.setattr(LoopWatch, "_beat", counted)
    # A beat may fall into the start of the watch.
    assert run(wait_and_hold()) <= 3


def sight(seconds, delayed=0.0):
    return Sight("f", 1.0, 1.0 + seconds, delayed)


@pytest.mark.parametrize(
    ("wall", "cpu", "sight", "delayed", "expected"),
    [
        (0.03, 0.03, None, None, 0.0),
        (1.0, 0.9, None, None, 0.9),
        # A machine that gives no time: nothing was done, and all of it was waited for.
        (1.0, 0.01, sight(0.9), 0.88, 0.0),
        (1.0, 0.01, None, None, 0.0),
        # It slept, and a processor was free.
        (1.0, 0.01, sight(0.9, 3.0), 3.05, 0.85),
        # The same, where nobody looked in time, or nothing is known.
        (1.0, 0.01, sight(0.0), 0.0, 0.0),
        (1.0, 0.01, sight(0.9, None), 0.0, 0.0),
    ],
)
def test_only_blocking_callbacks_are_counted(wall, cpu, sight, delayed, expected):
    assert held_seconds(wall, cpu, sight, delayed) == pytest.approx(expected)


@pytest.mark.parametrize("is_stopping", [False, True])
async def test_what_holds_a_loop_that_stops_is_no_warning(is_stopping, caplog):
    before = num_found()
    with caplog.at_level(logging.INFO), watched_loop(lambda: True, lambda: is_stopping):
        await asyncio.sleep(0.1)
        async with asyncio.timeout(30):
            while num_found() == before:
                work_for(0.3)
                await asyncio.sleep(0.1)
    [*_, record] = [one for one in caplog.records if "was held for" in one.message]
    assert record.levelno == (logging.INFO if is_stopping else logging.WARNING)


async def test_what_held_the_loop_before_the_process_was_ready_is_not_counted():
    is_ready = False
    before = num_found()
    with watched_loop(lambda: is_ready):
        await asyncio.sleep(0.1)
        work_for(0.3)
        # Ready in the same turn of the loop.
        is_ready = True
        await asyncio.sleep(0.2)
    assert num_found() == before
