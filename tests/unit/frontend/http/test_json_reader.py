"""Large bodies: parsed in a process of their own, as small ones are, one at a time and bounded."""

import asyncio
import os
import signal
import threading

import orjson
import pytest

from pagewire_frontend.http.body import json_link, json_reader
from pagewire_frontend.http.body.json_body import MAX_COMMAS, parse_object
from pagewire_frontend.http.body.json_link import JsonLink
from pagewire_frontend.http.body.json_reader import LARGE_BYTES, JsonReader
from pagewire_shared.errors import InternalError, InvalidRequestError, OverloadedError

CHUNK_BYTES = 60_000
# Of the tokens of a prompt; of texts; of turns.
BODIES = [
    {"prompt": list(range(100_000))},
    {"prompt": 'said "time"\n\U0001f600, é ' * 60_000, "big": 2**80, "less": -0.5},
    {"messages": [{"role": "user", "content": "word " * 20}] * 5_000, "stream": None},
]
FILLING = b" " * LARGE_BYTES
REFUSED = [
    FILLING,
    FILLING + b"[]",
    FILLING + b"{} {}",
    b"\xef\xbb\xbf{}" + FILLING,
    FILLING + b'{"a": 1e999}',
    FILLING + b'{"a": NaN}',
    FILLING + b'{"a": "\xff"}',
    FILLING + b'{"a": "\\ud800"}',
    FILLING + b'{"abc": 1, "abc": 1}',
    FILLING + b'{"a": ' + b"[" * 20_000,
    b'{"a": [' + b"1," * (MAX_COMMAS + 1) + b"1]}",
]


@pytest.fixture
def reader():
    made = JsonReader(2**25)
    yield made
    made.close()


@pytest.fixture
def parsed_here(monkeypatch):
    """Sizes of the bodies that were parsed in this process."""
    sizes = []

    def noting(raw):
        sizes.append(len(raw))
        return parse_object(raw)

    monkeypatch.setattr(json_reader, "parse_object", noting)
    return sizes


def chunks_of(raw):
    return [raw[start : start + CHUNK_BYTES] for start in range(0, len(raw), CHUNK_BYTES)]


def same(value):
    return value


async def test_a_large_body_is_parsed_elsewhere(reader, parsed_here):
    for body in BODIES:
        raw = orjson.dumps({**body, "big": 1}).replace(b'"big":1', b'"big":%d' % 2**80)
        assert len(raw) >= LARGE_BYTES
        assert await reader.read(None, chunks_of(raw), same) == {**body, "big": 2**80}
    assert parsed_here == []


async def test_a_small_one_is_not(reader, parsed_here):
    raw = orjson.dumps({"prompt": "x" * (LARGE_BYTES - 100)})
    assert await reader.read(None, chunks_of(raw), same) == orjson.loads(raw)
    assert parsed_here == [len(raw)]


async def test_both_refuse_the_same_in_the_same_words(reader):
    for raw in REFUSED:
        with pytest.raises(InvalidRequestError) as here:
            parse_object(raw)
        with pytest.raises(InvalidRequestError) as elsewhere:
            await reader.read(None, chunks_of(raw), same)
        assert (elsewhere.value.message, elsewhere.value.code) == (
            here.value.message,
            here.value.code,
        )


async def test_what_is_made_of_it_may_refuse_it(reader):
    def refusing(value):
        raise InvalidRequestError("wrong", field=next(iter(value)))

    with pytest.raises(InvalidRequestError) as caught:
        await reader.read(None, chunks_of(orjson.dumps(BODIES[0])), refusing)
    assert caught.value.field == "prompt"


async def test_a_process_that_was_killed_is_replaced(reader):
    chunks = chunks_of(orjson.dumps(BODIES[0]))
    await reader.read(None, chunks, same)
    first = reader._link.pid
    os.kill(first, signal.SIGKILL)
    assert await reader.read(None, chunks, same) == BODIES[0]
    assert reader._link.pid != first


async def test_a_body_that_kills_it_is_no_error_of_the_next(reader, monkeypatch, caplog):
    chunks = chunks_of(orjson.dumps(BODIES[0]))
    parse = JsonLink.parse

    def killed(link, chunks):
        os.kill(link.pid, signal.SIGKILL)
        return parse(link, chunks)

    with monkeypatch.context() as patched:
        patched.setattr(JsonLink, "parse", killed)
        with pytest.raises(InternalError, match="ended"):
            await reader.read(None, chunks, same)
    assert caplog.text.count("ended in its work") == json_reader.NUM_ATTEMPTS
    assert await reader.read(None, chunks, same) == BODIES[0]


async def test_an_answer_that_was_not_read_to_its_end_is_not_the_next_ones(reader, monkeypatch):
    def full(pieces):
        next(iter(pieces))
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(json_link, "join", full)
        with pytest.raises(MemoryError):
            await reader.read(None, chunks_of(orjson.dumps(BODIES[2])), same)
    assert reader._link is None
    assert await reader.read(None, chunks_of(orjson.dumps(BODIES[0])), same) == BODIES[0]


async def test_those_that_wait_are_bounded_and_wait_for_one(monkeypatch, request):
    monkeypatch.setattr(json_reader, "MAX_WAITING_BYTES", 2**24)
    reader = JsonReader(2**20)
    request.addfinalizer(reader.close)
    chunks = chunks_of(b" " * 2**20 + b"{}")
    may_go_on = threading.Event()
    running = []

    def waiting(value):
        running.append(value)
        assert may_go_on.wait(60)
        return len(running)

    calls = [asyncio.create_task(reader.read("a", chunks, waiting)) for _ in range(9)]
    try:
        done, open_calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        refused = [call.exception() for call in done]
        # A tenant has half of all.
        assert len(refused) == 2
        assert all(isinstance(error, OverloadedError) for error in refused)
        assert "large bodies" in refused[0].message
        gone = next(call for call in calls[1:] if not call.done())
        gone.cancel()
    finally:
        may_go_on.set()
    results = await asyncio.gather(*(open_calls - {gone}))
    # One after the other; who left while it waited was not read.
    assert sorted(results) == [1, 2, 3, 4, 5, 6]


async def test_the_end_leaves_no_process(reader):
    await reader.read(None, chunks_of(orjson.dumps(BODIES[0])), same)
    process = reader._link._process
    reader.close()
    async with asyncio.timeout(20):
        while process.poll() is None:
            await asyncio.sleep(0.01)
