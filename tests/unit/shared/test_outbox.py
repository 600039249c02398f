"""The writing half of streams: order, bounds, bursts made when written, stalls."""

import asyncio
from dataclasses import dataclass

import pytest

from pagewire_shared.errors import InternalError, UnavailableError
from pagewire_shared.rpc.send_queue import SendQueue


@dataclass
class Sized:
    size: int
    name: str = ""

    def ByteSize(self) -> int:
        return self.size


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def taken(outbox, count):
    drained = outbox.drain()
    return [(await anext(drained)).name for _ in range(count)]


async def test_messages_come_out_in_the_order_in_which_they_were_queued():
    outbox = SendQueue(max_bytes=100)
    outbox.put(Sized(1, "a"))
    outbox.put_each(iter([Sized(1, "b"), Sized(1, "c")]))
    outbox.put(Sized(1, "d"))
    assert await taken(outbox, 4) == ["a", "b", "c", "d"]


async def test_a_burst_is_made_at_the_pace_of_the_writer():
    made = []

    def burst():
        for number in range(10_000):
            made.append(number)
            yield Sized(10, str(number))

    outbox = SendQueue(max_bytes=1)
    outbox.put_each(burst())
    assert not made
    assert await taken(outbox, 3) == ["0", "1", "2"]
    assert made == [0, 1, 2]
    assert outbox.num_bytes == 0


async def test_offer_refuses_messages_while_too_many_bytes_wait():
    outbox = SendQueue(max_bytes=10)
    assert outbox.offer(Sized(10, "a"))
    assert not outbox.offer(Sized(1, "b"))
    outbox.put(Sized(5, "c"))
    assert outbox.num_bytes == 15
    assert await taken(outbox, 2) == ["a", "c"]
    assert outbox.offer(Sized(1, "d"))


@pytest.mark.parametrize("enter", ["put", "offer"])
async def test_a_message_above_the_bound_is_refused_and_disturbs_nothing(enter):
    outbox = SendQueue(max_bytes=100, message_bytes=8)
    with pytest.raises(InternalError):
        getattr(outbox, enter)(Sized(9))
    assert outbox.num_bytes == 0
    outbox.put(Sized(8, "fits"))
    assert await taken(outbox, 1) == ["fits"]


async def test_a_message_of_a_burst_above_the_bound_is_an_error_of_the_stream():
    outbox = SendQueue(max_bytes=100, message_bytes=8)
    outbox.put_each(iter([Sized(9)]))
    with pytest.raises(InternalError):
        await anext(outbox.drain())


async def test_stalled_time_counts_only_while_messages_wait():
    clock = Clock()
    outbox = SendQueue(max_bytes=100, clock=clock)
    clock.now = 50.0
    assert outbox.stalled_seconds == 0
    outbox.put(Sized(1))
    outbox.put(Sized(1))
    clock.now = 53.0
    assert outbox.stalled_seconds == 3.0
    await taken(outbox, 1)
    assert outbox.stalled_seconds == 0
    clock.now = 54.0
    assert outbox.stalled_seconds == 1.0


async def test_close_drops_waiting_messages_and_raises_its_error_in_the_reader():
    outbox = SendQueue(max_bytes=100)
    outbox.put_each(iter([Sized(1)]))
    outbox.close(UnavailableError("over"))
    outbox.put(Sized(1))
    assert outbox.offer(Sized(1))
    with pytest.raises(UnavailableError):
        await anext(outbox.drain())
    assert outbox.num_bytes == 0


async def test_a_reader_that_waits_is_woken():
    outbox = SendQueue(max_bytes=100)
    first = asyncio.create_task(taken(outbox, 1))
    await asyncio.sleep(0)
    outbox.put(Sized(1, "late"))
    assert await first == ["late"]
