"""What is kept of responses: bounded by count, bytes and age, the oldest first."""

import asyncio
import random

import pytest

from pagewire_frontend.http.responses.ids import gone, not_found
from pagewire_frontend.http.responses.store import ResponseStore, StoredResponse, StoreLimits
from pagewire_frontend.http.streaming.frame_log import BATCH_BYTES, FrameLog

LIMITS = StoreLimits(max_responses=3, max_bytes=100, max_seconds=10.0)


def response(size, events=None):
    return StoredResponse(
        tenant=None, is_background=False, body=b"x" * size, input_items=b"", events=events
    )


def kept(store, now=0.0):
    return [name for name in "abcdef" if store.get(name, now) is not None]


def test_the_count():
    store = ResponseStore(LIMITS)
    for name in "abcd":
        store.put(name, response(1), 0.0)
    assert kept(store) == ["b", "c", "d"]


def test_the_bytes():
    store = ResponseStore(LIMITS)
    for name, size in (("a", 40), ("b", 40), ("c", 21)):
        store.put(name, response(size), 0.0)
    assert kept(store) == ["b", "c"]
    assert store.num_bytes == 61
    store.put("d", response(40, events=(b"x" * 61,)), 0.0)
    assert kept(store) == ["b", "c"], "one that never fits costs no other its place"
    store.put("e", response(40, events=(b"x" * 60,)), 0.0)
    assert kept(store) == ["e"]


def test_the_age():
    store = ResponseStore(LIMITS)
    store.put("a", response(1), 0.0)
    store.put("b", response(1), 5.0)
    assert kept(store, 9.9) == ["a", "b"]
    assert kept(store, 10.0) == ["b"]
    assert kept(store, 15.0) == []
    assert (len(store), store.num_bytes) == (0, 0)


def test_none():
    store = ResponseStore(StoreLimits(max_responses=0, max_bytes=100, max_seconds=1.0))
    store.put("a", response(1), 0.0)
    assert (kept(store), store.num_bytes) == ([], 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_bounds_hold_whatever_happens(seed):
    generator = random.Random(seed)
    store, now = ResponseStore(LIMITS), 0.0
    for _ in range(200):
        now += generator.random() * 3
        name = generator.choice("abcdef")
        if generator.random() < 0.2:
            store.drop(name)
        else:
            store.put(name, response(generator.randrange(120)), now)
        found = [store.get(name, now) for name in "abcdef"]
        sizes = [item.num_bytes for item in found if item is not None]
        assert len(sizes) == len(store) <= LIMITS.max_responses
        assert sum(sizes) == store.num_bytes <= LIMITS.max_bytes


async def test_readers_of_a_log_see_all_of_it():
    log = FrameLog()

    async def read(first):
        return [frame async for frames in log.follow(first) for frame in frames]

    readers = [asyncio.create_task(read(first)) for first in (0, 1, 5)]
    for number in range(4):
        log.append([b"%d" % number])
        await asyncio.sleep(0)
    log.end()
    assert await asyncio.gather(*readers) == [[b"0", b"1", b"2", b"3"], [b"1", b"2", b"3"], []]
    assert await read(2) == [b"2", b"3"]


async def test_a_reader_of_a_log_gets_a_part_at_a_time():
    log = FrameLog()
    log.append([b"x" * (BATCH_BYTES // 4)] * 10 + [b"y" * (3 * BATCH_BYTES)] * 2)
    log.end()
    assert [len(frames) async for frames in log.follow(0)] == [4, 4, 3, 1]


def test_why_a_response_is_not_to_be_had():
    tail = "0" * 32
    assert "is gone: it was deleted" in not_found(f"resp_0123abcd_{tail}").message
    assert "is gone with the frontend process" in gone(f"resp_0123abce_{tail}").message
    assert "no id" in not_found("chatcmpl-1").message
