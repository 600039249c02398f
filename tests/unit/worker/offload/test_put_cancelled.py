"""A put into shared memory that is given up writes nothing more once it has returned."""

import asyncio
import threading

import pytest

from pagewire_worker.offload.put_stream import _write_all


class Arena:
    """Writes when it is told to; a SharedArena otherwise."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.num_written = 0

    def write_all(self, offsets, payloads, is_cancelled):
        for _ in zip(offsets, payloads, strict=True):
            if is_cancelled():
                break
            self.begun.set()
            assert self.may_end.wait(20)
            self.num_written += 1
        return [0] * self.num_written


async def test_it_stops_after_the_payload_at_hand() -> None:
    arena = Arena()
    task = asyncio.create_task(_write_all(arena, [0, 1, 2], [memoryview(b"x")] * 3))
    while not arena.begun.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.sleep(0.02)
    assert not task.done(), "it has returned and writes on"
    arena.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert arena.num_written == 1


async def test_a_put_that_goes_through_returns_all_checksums() -> None:
    arena = Arena()
    arena.may_end.set()
    assert await _write_all(arena, [0, 1], [memoryview(b"x")] * 2) == [0, 0]
