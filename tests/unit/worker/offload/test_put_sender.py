"""The circuit breaker before a store that does not keep up."""

import asyncio
from types import SimpleNamespace

import pytest
import torch

from pagewire_shared.errors import UnavailableError
from pagewire_shared.process.backoff import Backoff
from pagewire_worker.offload import metrics, put_sender
from pagewire_worker.offload.put_batch import PutBatch
from pagewire_worker.offload.put_sender import MAX_BATCHES, NUM_PUTS, PutSender
from pagewire_worker.offload.unsent_blocks import UnsentBlock


class Connector:
    """Answers as told, one thing per put; then with all names."""

    def __init__(self):
        self.answers = []
        self.store_id = b"first"
        self.puts = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def put(self, blocks):
        self.puts.append(b"".join(block.name for block in blocks))
        await self.may_answer.wait()
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        if answer == "hang":
            await asyncio.Event().wait()
        return frozenset(block.name for block in blocks) if answer is None else answer


@pytest.fixture
async def setup():
    connector, settled, nudges = Connector(), asyncio.Queue(), []
    sender = PutSender(
        connector,
        lambda *outcome: settled.put_nowait(outcome),
        lambda: nudges.append(1),
        put_seconds=0.2,
        backoff=Backoff(0.1, 10.0),
    )
    sender.set_store(is_there=True)
    task = asyncio.create_task(sender.run())
    yield SimpleNamespace(connector=connector, settled=settled, nudges=nudges, sender=sender)
    task.cancel()
    await asyncio.wait((task,))


def batch(*names):
    entries = [UnsentBlock(index, name, None, 0) for index, name in enumerate(names)]
    payloads = torch.zeros((len(names), 8), dtype=torch.uint8)
    return PutBatch(entries, payloads, payloads)


def dropped(reason):
    return metrics.DROPPED_BLOCKS.labels(reason)._value.get()


async def outcome(setup):
    return await asyncio.wait_for(setup.settled.get(), 10)


async def test_stored_names_come_back(setup):
    setup.connector.answers = [frozenset([b"a"])]
    before = dropped("no_room")
    setup.sender.send(batch(b"a", b"b"))
    _, names, is_new_store = await outcome(setup)
    assert (names, is_new_store) == ({b"a"}, True)
    assert dropped("no_room") == before + 1
    setup.sender.send(batch(b"c"))
    assert (await outcome(setup))[1:] == ({b"c"}, False)
    setup.connector.store_id = b"second"
    setup.sender.send(batch(b"d"))
    assert (await outcome(setup))[1:] == ({b"d"}, True)
    assert len(setup.nudges) == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (UnavailableError("gone"), "unavailable"),
        ("hang", "deadline_exceeded"),
        (ZeroDivisionError("a bug"), "connector_fault"),
        (asyncio.CancelledError(), "unavailable"),
    ],
)
async def test_a_failure_closes_the_outlet_for_a_pause(setup, answer, reason):
    setup.connector.answers = [answer]
    before = dropped(reason), dropped("store_down")
    assert setup.sender.is_open
    setup.sender.send(batch(b"a"))
    setup.sender.send(batch(b"b", b"c"))
    for _ in range(2):
        assert (await outcome(setup))[1] is None
    assert not setup.sender.is_open
    # On its way already when the first ones failed.
    setup.sender.send(batch(b"d", b"e"))
    assert (await outcome(setup))[1] is None
    assert setup.connector.puts == [b"abc"]
    assert dropped(reason) == before[0] + 3
    assert dropped("store_down") == before[1] + 2
    num_nudges = len(setup.nudges)
    async with asyncio.timeout(10):
        while len(setup.nudges) == num_nudges or not setup.sender.is_open:
            await asyncio.sleep(0.005)
    setup.sender.send(batch(b"d"))
    assert (await outcome(setup))[1] == {b"d"}


async def test_batches_that_wait_go_together(setup):
    connector = setup.connector
    connector.may_answer.clear()
    for number in range(NUM_PUTS):
        setup.sender.send(batch(b"%d" % number))
        async with asyncio.timeout(10):
            while len(connector.puts) == number:
                await asyncio.sleep(0.002)
    waiting = b"abcdefghi"[: MAX_BATCHES + 2]
    for name in waiting:
        setup.sender.send(batch(bytes((name,))))
    await asyncio.sleep(0.01)
    assert len(connector.puts) == NUM_PUTS
    connector.may_answer.set()
    settled = [await outcome(setup) for _ in range(NUM_PUTS + len(waiting))]
    assert connector.puts[NUM_PUTS:] == [waiting[:MAX_BATCHES], waiting[MAX_BATCHES:]]
    assert all({entry.name for entry in one.entries} <= names for one, names, _ in settled)
    assert [is_new for _, _, is_new in settled].count(True) == 1


async def test_over_a_slow_link_they_go_one_by_one(setup, monkeypatch):
    connector = setup.connector
    monkeypatch.setattr(put_sender, "SLOW_SECONDS", 0.0)
    for name in (b"a", b"b", b"c"):
        setup.sender.send(batch(name))
    for _ in range(3):
        await outcome(setup)
    assert connector.puts == [b"abc"]
    for name in (b"d", b"e"):
        setup.sender.send(batch(name))
    for _ in range(2):
        await outcome(setup)
    assert connector.puts == [b"abc", b"d", b"e"]
    monkeypatch.undo()
    setup.sender.send(batch(b"f"))
    await outcome(setup)
    setup.sender.send(batch(b"g"))
    setup.sender.send(batch(b"h"))
    for _ in range(2):
        await outcome(setup)
    assert connector.puts[3:] == [b"f", b"gh"]


async def test_a_put_that_is_late_was_too_large(setup):
    setup.connector.answers = ["hang"]
    setup.sender.send(batch(b"a"))
    assert (await outcome(setup))[1] is None
    async with asyncio.timeout(10):
        while not setup.sender.is_open:
            await asyncio.sleep(0.002)
    setup.sender.send(batch(b"b"))
    setup.sender.send(batch(b"c"))
    for _ in range(2):
        await outcome(setup)
    assert setup.connector.puts == [b"a", b"b", b"c"]


async def test_pauses_grow(setup):
    setup.connector.answers = [*[UnavailableError("gone")] * 3, None, UnavailableError("gone")]
    loop, pauses = asyncio.get_running_loop(), []
    for _ in range(5):
        async with asyncio.timeout(10):
            while not setup.sender.is_open:
                await asyncio.sleep(0.002)
        setup.sender.send(batch(b"a"))
        await outcome(setup)
        pauses.append(setup.sender._paused_until - loop.time())
    # Nominally 0.1, 0.2 and 0.4, each between half and all of it; then a success, and 0.1 again.
    assert pauses[2] > pauses[0]
    assert pauses[3] < 0.0 < pauses[4] <= 0.1


async def test_without_a_store_it_is_closed(setup):
    setup.sender.set_store(is_there=False)
    assert not setup.sender.is_open
