"""One load: what is written, what is answered, and when nothing is written any more."""

import asyncio
import threading

import pytest

from pagewire_shared.errors import DeadlineError, UnavailableError
from pagewire_shared.kv.load import LoadOrder, LoadOutcome
from pagewire_worker.offload import block_load
from pagewire_worker.offload.block_load import BlockLoad
from pagewire_worker.offload.connector import LoadedBlock
from pagewire_worker.runner.model_thread import ModelThread

NAMES = [bytes([index]) * 16 for index in range(6)]
BLOCKS = [7, 3, 9, 1, 0, 4]
LONG = 20.0


class Source:
    """A connector that yields what it is told: tiers, an error, or a wait."""

    def __init__(self, *steps):
        self.steps = steps
        self.num_yielded = 0
        self.is_closed = False

    async def get(self, address, names, timeout_seconds):
        try:
            for step in self.steps:
                if isinstance(step, BaseException):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                    continue
                name = names[self.num_yielded] if isinstance(step, str) else step
                self.num_yielded += 1
                yield LoadedBlock(name, bytes(8), step if isinstance(step, str) else "memory")
        finally:
            self.is_closed = True


@pytest.fixture
async def thread():
    made = ModelThread(asyncio.get_running_loop())
    made.start()
    yield made
    await asyncio.to_thread(made.stop, 5)


class Pool:
    """Notes what is written."""

    def __init__(self):
        self.written = []

    def write(self, blocks, names, payloads):
        assert len(blocks) == len(names) == len(payloads)
        self.written += zip(blocks, names, strict=True)


@pytest.fixture
def pool():
    return Pool()


@pytest.fixture
def load(thread, pool):
    """Return a function that makes a load of all NAMES."""

    def make(source, *, seconds=LONG, write=None, max_blocks=4):
        order = LoadOrder(
            load_id=11, store="store", names=NAMES, blocks=BLOCKS, timeout_ms=int(1000 * seconds)
        )
        return BlockLoad(
            order=order,
            connector=source,
            submit=thread.submit,
            write=write or pool.write,
            max_blocks=max_blocks,
        )

    return make


def pairs(count):
    return list(zip(BLOCKS[:count], NAMES[:count], strict=True))


async def test_all_blocks_come(load, pool):
    answer = await load(Source(*["memory"] * 2, *["disk"] * 4)).run()
    assert pool.written == pairs(6)
    assert (answer.load_id, answer.num_blocks) == (11, 6)
    assert answer.outcome is LoadOutcome.COMPLETE
    assert answer.num_bytes == 48
    assert dict(answer.tiers) == {"memory": 2, "disk": 4}
    assert answer.seconds > 0


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_the_first_missing_block_ends_what_is_used(load, pool, count):
    answer = await load(Source(*["redis"] * count)).run()
    assert (answer.num_blocks, answer.outcome) == (count, LoadOutcome.MISSING)
    assert pool.written == pairs(count)
    assert sum(dict(answer.tiers).values()) == count


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (UnavailableError("gone"), LoadOutcome.FAILED),
        (DeadlineError("slow"), LoadOutcome.LATE),
        (ZeroDivisionError("a bug of a connector"), LoadOutcome.FAILED),
        (asyncio.CancelledError(), LoadOutcome.FAILED),
    ],
)
async def test_what_came_before_a_failure_may_be_used(load, pool, error, outcome):
    hold = asyncio.Event()
    running = asyncio.create_task(load(Source("memory", "memory", hold, error)).run())
    await written(pool, 2)
    hold.set()
    answer = await running
    assert (answer.num_blocks, answer.outcome) == (2, outcome)
    assert pool.written == pairs(2)


async def written(pool, count):
    async with asyncio.timeout(LONG):
        while len(pool.written) < count:
            await asyncio.sleep(0.005)


async def test_a_wrong_block_is_never_written(load, pool):
    answer = await load(Source("memory", NAMES[4])).run()
    assert answer.outcome is LoadOutcome.FAILED
    assert pool.written in ([], pairs(1))
    assert answer.num_blocks == len(pool.written)


@pytest.mark.parametrize(
    ("tiers", "fault"),
    [
        (["memory", "Tape"], "the name of a tier"),
        (["memory", "worker"], "the name of a tier"),
        ([f"t{number}" for number in range(6)], "more than 4 tiers"),
    ],
)
async def test_a_tier_that_is_none_is_the_fault_of_the_connector(
    load, pool, monkeypatch, tiers, fault
):
    monkeypatch.setattr(block_load, "MAX_TIERS", 4)
    made = load(Source(*tiers))
    answer = await made.run()
    assert answer.outcome is LoadOutcome.FAILED
    assert fault in made.connector_fault
    assert answer.num_blocks == len(pool.written) < len(tiers)


async def test_a_connector_may_name_its_own_tiers(load):
    made = load(Source(*["lm-cache"] * 5, "s3"))
    assert dict((await made.run()).tiers) == {"lm-cache": 5, "s3": 1}
    assert made.connector_fault is None


async def test_more_blocks_than_asked_for_are_a_fault_that_changes_nothing(load, pool):
    answer = await load(Source(*["memory"] * 6, NAMES[0])).run()
    assert (answer.num_blocks, pool.written) == (6, pairs(6))


async def test_the_answer_comes_in_time_with_what_is_there(load, pool):
    source = Source("memory", asyncio.Event(), "memory")
    answer = await load(source, seconds=0.3).run()
    assert (answer.num_blocks, answer.outcome) == (1, LoadOutcome.LATE)
    async with asyncio.timeout(LONG):
        while not source.is_closed:
            await asyncio.sleep(0.005)


async def test_cancelled_it_answers_with_what_is_there(load, pool):
    made = load(Source("memory", "memory", asyncio.Event()))
    running = asyncio.create_task(made.run())
    await written(pool, 2)
    made.cancel()
    answer = await running
    assert (answer.num_blocks, answer.outcome) == (2, LoadOutcome.CANCELLED)


async def test_no_task_is_left_of_one_that_waits_in_vain(load):
    before = asyncio.all_tasks()
    answer = await load(Source(asyncio.Event()), seconds=0.2).run()
    assert answer.outcome is LoadOutcome.LATE
    async with asyncio.timeout(LONG):
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0.005)


async def test_nothing_is_written_after_the_answer(load, pool, thread):
    """The model thread is in a long step; the job of the load waits behind it."""
    release = threading.Event()
    step = thread.submit(release.wait)
    answer = await load(Source(*["memory"] * 6), seconds=0.2).run()
    assert (answer.num_blocks, answer.outcome) == (0, LoadOutcome.LATE)
    release.set()
    await step
    await thread.submit(lambda: None)
    assert pool.written == []


async def test_nothing_is_written_once_its_attach_is_gone(load, pool, thread):
    release = threading.Event()
    step = thread.submit(release.wait)
    running = asyncio.create_task(load(Source(*["memory"] * 6)).run())
    await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.wait((running,))
    release.set()
    await step
    await thread.submit(lambda: None)
    assert pool.written == []


async def test_a_job_that_writes_when_time_is_over_is_counted(load, pool):
    """The answer waits for it: a block must not be named behind the scheduler's back."""
    begun, release = threading.Event(), threading.Event()

    def write(blocks, names, payloads):
        begun.set()
        release.wait()
        pool.write(blocks, names, payloads)

    made = load(Source("memory", asyncio.Event()), write=write)
    running = asyncio.create_task(made.run())
    await asyncio.to_thread(begun.wait, LONG)
    made.cancel()
    await asyncio.sleep(0.05)
    assert not running.done()
    release.set()
    answer = await running
    assert (answer.num_blocks, pool.written) == (1, pairs(1))


async def test_a_write_that_fails_ends_the_load(load, pool):
    def write(blocks, names, payloads):
        raise ValueError("a block has 8 bytes, not 7")

    answer = await load(Source(*["memory"] * 6), write=write).run()
    assert (answer.num_blocks, answer.outcome) == (0, LoadOutcome.FAILED)


async def test_reading_stops_while_nothing_is_written(load, pool, thread, monkeypatch):
    monkeypatch.setattr(block_load, "MAX_UNWRITTEN_BYTES", 16)
    release = threading.Event()
    step = thread.submit(release.wait)
    source = Source(*["memory"] * 6)
    running = asyncio.create_task(load(source).run())
    async with asyncio.timeout(LONG):
        while source.num_yielded < 2:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert source.num_yielded == 2
    release.set()
    await step
    assert (await running).outcome is LoadOutcome.COMPLETE
    assert pool.written == pairs(6)
