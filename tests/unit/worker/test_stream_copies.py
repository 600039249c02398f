"""Copies beside steps on a device that runs as late, and in any order, as its events allow.

Random histories of steps, offloads, loads and pulls of layers over one pool. Each write gives a
block a number of its own, in all its bytes: who reads something else read too early or too late.
"""

import random
import threading
from collections import deque
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pagewire_worker.device_copies import CopyOrder
from pagewire_worker.executor import Executor
from pagewire_worker.kv_cache import CacheShape, KvCache
from pagewire_worker.offload import block_offloader
from pagewire_worker.offload.block_offloader import BlockOffloader
from pagewire_worker.offload.block_watch import Watches
from pagewire_worker.slots import SlotLimits
from pagewire_worker.step import StepPlan
from pagewire_worker.stream_copies import Stream, StreamCopies
from support.fake_streams import FakeStreams
from support.worker_driver import request

NUM_BLOCKS, NUM_LAYERS, NUM_ACTIONS = 12, 2, 150
CPU = torch.device("cpu")
SHAPE = CacheShape(num_layers=NUM_LAYERS, num_kv_heads=1, head_dim=4)


class WrongContentError(AssertionError):
    """Somebody read something else than was written last."""


def check(content, number):
    if not (np.asarray(content) == number).all():
        raise WrongContentError(f"{number} was written, {np.unique(content)} was read")


class Outlet:
    """Looks into each batch when it comes, in whatever thread, and settles it later."""

    is_open = True

    def __init__(self):
        self.batches = deque()
        self.names = []
        self.errors = []

    def send(self, batch):
        for block in batch.blocks():
            try:
                check(np.frombuffer(block.payload, np.float32), number_of(block.name))
            except WrongContentError as error:
                self.errors.append(error)
            self.names.append(block.name)
        self.batches.append(batch)


def number_of(name):
    return int.from_bytes(name, "little")


class History:
    """One pool, its executor and its offloader on one device."""

    def __init__(self, seed, make_copies=StreamCopies):
        self.dice = random.Random(seed)
        self.streams = FakeStreams(seed)
        self.copies = make_copies(self.streams, pin=lambda memory: lambda: None)
        self.cache = KvCache(SHAPE, NUM_BLOCKS, 4, CPU, torch.float32, has_whole_blocks=True)
        self.outlet = Outlet()
        self.offloader = BlockOffloader(self.cache, copies=self.copies)
        self.offloader.connect(self.outlet)
        self.offloader.follow(plan(new_requests=[request(0)]))
        self.executor = Executor(
            SimpleNamespace(kv_cache=self.cache),
            SlotLimits(1, NUM_BLOCKS, 4, 16, 8, None),
            8,
            CPU,
            watch=Watches(self.offloader, CopyOrder(self.copies)),
            copies=self.copies,
        )
        self.numbers = dict.fromkeys(range(NUM_BLOCKS), 0)
        self.steps = deque()
        self.count = 0

    def run(self):
        actions = (self.step, self.load, self.load_layers, self.turn, self.settle, self.read)
        try:
            for _ in range(NUM_ACTIONS):
                self.dice.choice(actions)()
                for _ in range(self.dice.choice([0, 0, 1, 3, 10])):
                    self.streams.run_one()
            self.settle()
            self.turn()
            self.streams.run_all()
        finally:
            self.streams.run_all()
            self.copies.close()
        if self.outlet.errors:
            raise self.outlet.errors[0]

    def step(self):
        """Read some blocks and write others, and give these names."""
        count = self.dice.randint(1, 3)
        written = self.dice.sample(range(NUM_BLOCKS), count)
        read = [block for block in self.dice.sample(range(NUM_BLOCKS), 3) if block not in written]
        numbers = [self.number() for _ in written]
        watch = self.executor._watch
        watch.follow(plan())
        self.executor._begin_blocks(written)
        expected = {block: self.numbers[block] for block in read}
        self.streams.enqueue(Stream.COMPUTE, partial(self.check_blocks, expected))
        for block, number in zip(written, numbers, strict=True):
            self.streams.enqueue(Stream.COMPUTE, partial(self.fill, block, number))
            self.numbers[block] = number
        self.steps.append((set(read) | set(written), self.streams.record(Stream.COMPUTE)))
        names = [name_of(number) for number in numbers]
        done = plan(named_blocks=written, names=names, named_slots=[0] * count)
        self.executor._apply_names(done)

    def number(self):
        self.count += 1
        return self.count

    def fill(self, block, number):
        self.cache.blocks[block].fill_(number)

    def check_blocks(self, expected):
        for block, number in expected.items():
            check(self.cache.blocks[block], number)

    def free(self, most):
        """Blocks that no step names whose result is not there."""
        self.steps = deque((blocks, event) for blocks, event in self.steps if not event.query())
        used = set().union(*(blocks for blocks, _ in self.steps))
        left = sorted(set(range(NUM_BLOCKS)) - used)
        return self.dice.sample(left, min(most, len(left)))

    def loaded(self, most):
        blocks = self.free(most)
        numbers = [self.number() for _ in blocks]
        self.numbers.update(zip(blocks, numbers, strict=True))
        return blocks, numbers, [name_of(number) for number in numbers]

    def load(self):
        blocks, numbers, names = self.loaded(2)
        payloads = [np.full(32 * NUM_LAYERS, number, np.float32).tobytes() for number in numbers]
        self.executor.load_blocks(blocks, names, payloads, self.offloader.load_staging)

    def load_layers(self):
        blocks, numbers, names = self.loaded(2)
        if not blocks:
            return
        self.executor.begin_load(blocks)
        side = np.repeat(np.array(numbers, np.float32), 16)
        for layer in range(NUM_LAYERS):
            payload = torch.from_numpy(np.concatenate((side, side))).view(torch.uint8)
            self.executor.load_layers(blocks, layer, 1, payload)
        self.executor.name_loaded(blocks, names)

    def turn(self):
        self.offloader.turn(is_idle=True)

    def settle(self):
        while self.outlet.batches:
            self.offloader.settle(self.outlet.batches.popleft(), None, False)

    def read(self):
        """Copy named blocks out, as digests do."""
        names = list(self.executor.held_names().values())
        some = self.dice.sample(names, min(2, len(names)))
        staging = torch.zeros((2, self.cache.bytes_per_block), dtype=torch.uint8)
        for row, index in enumerate(self.executor.copy_out(some, staging)):
            check(staging[row].view(torch.float32), number_of(some[index]))


def plan(**fields):
    return StepPlan(generation=1, incarnation=1, step_id=1, **fields)


def name_of(number):
    return number.to_bytes(16, "little")


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(block_offloader, "STAGING_BYTES", 2 * 128 * NUM_LAYERS)
    monkeypatch.setattr(block_offloader, "NUM_STAGING", 3)


@pytest.mark.parametrize("seed", range(40))
def test_everybody_reads_what_was_written_last(seed):
    history = History(seed)
    history.run()
    assert history.outlet.names


class NoWaitForSteps(StreamCopies):
    """Copies out without waiting for what was computed."""

    def copy_out(self, blocks, work):
        self._streams.enqueue(Stream.OUT, work)
        return self._streams.record(Stream.OUT)


class NoOverwrite(StreamCopies):
    def overwrite(self, blocks):
        pass


class OverwriteByStepsOnly(StreamCopies):
    def overwrite(self, blocks):
        streams, self._streams = self._streams, OnlyCompute(self._streams)
        super().overwrite(blocks)
        self._streams = streams


class OnlyCompute:
    def __init__(self, streams):
        self.streams = streams

    def wait(self, stream, event):
        if stream is Stream.COMPUTE:
            self.streams.wait(stream, event)


class NoLoadsBeforeSteps(StreamCopies):
    def begin_step(self):
        pass


class NoLoadsBeforeCopies(StreamCopies):
    def _follow_loads(self, stream):
        if stream is Stream.COMPUTE:
            super()._follow_loads(stream)


class NoWaitForStaging(StreamCopies):
    def wait_for_loads(self):
        pass


class CallsAtOnce(StreamCopies):
    def call_after(self, event, then):
        then()


@pytest.mark.parametrize(
    "make_copies",
    [
        NoWaitForSteps,
        NoOverwrite,
        OverwriteByStepsOnly,
        NoLoadsBeforeSteps,
        NoLoadsBeforeCopies,
        NoWaitForStaging,
        CallsAtOnce,
    ],
)
def test_an_order_that_is_left_out_is_found(make_copies):
    def is_found(seed):
        try:
            History(seed, make_copies).run()
        except WrongContentError:
            return True
        return False

    assert any(is_found(seed) for seed in range(40))


@pytest.fixture
def streams():
    return FakeStreams()


@pytest.fixture
def copies(streams):
    made = StreamCopies(streams, pin=lambda memory: lambda: None)
    yield made
    streams.run_all()
    made.close()


def test_calls_come_in_order_and_not_before_their_copies(streams, copies):
    called, has_two = [], threading.Event()
    events = [copies.copy_out([block], lambda: None) for block in (1, 2)]
    copies.call_after(events[0], lambda: called.append(1))
    copies.call_after(events[1], lambda: (called.append(2), has_two.set()))
    assert not has_two.wait(0.05)
    assert called == []
    streams.run_all()
    assert has_two.wait(5)
    assert called == [1, 2]


def test_a_step_of_other_blocks_waits_for_no_copy(streams, copies):
    copies.copy_out([1, 2], lambda: None)
    copies.overwrite([3])
    streams.enqueue(Stream.COMPUTE, lambda: None)
    after = streams.record(Stream.COMPUTE)
    is_copied = streams._queues[Stream.OUT]
    num_left = len(is_copied)
    while not after.query():
        queue = streams._queues[Stream.COMPUTE]
        assert streams._is_ready(queue)
        queue.popleft()()
    assert len(is_copied) == num_left


def test_steps_nobody_waits_for_come_before_loads(streams, copies):
    order = []
    streams.enqueue(Stream.COMPUTE, lambda: order.append("step"))
    copies.drop_steps()
    copies.load(lambda: order.append("load"))
    streams.run_all()
    assert order == ["step", "load"]


def test_blocks_of_a_copy_that_could_not_begin_are_waited_for_too(streams, copies):
    def fail():
        raise RuntimeError("no memory")

    streams.enqueue = lambda stream, work: work()
    with pytest.raises(RuntimeError, match="no memory"):
        copies.copy_out([4], fail)
    copies.overwrite([4])
    assert len(streams._queues[Stream.COMPUTE]) == 2  # what the copy waits for, and the wait for it


def test_a_call_that_fails_ends_no_other(streams, copies):
    has_come = threading.Event()
    event = copies.copy_out([1], lambda: None)
    copies.call_after(event, lambda: 1 // 0)
    copies.call_after(event, has_come.set)
    streams.run_all()
    assert has_come.wait(5)


def test_closing_makes_the_calls_that_are_left(streams, copies):
    called = []
    event = copies.copy_out([1], lambda: None)
    copies.call_after(event, lambda: called.append(1))
    streams.run_all()
    copies.close()
    assert called == [1]
    copies.call_after(event, lambda: called.append(2))
    assert called == [1]


def test_a_failed_device_hands_nothing_on(streams, copies):
    class Failed:
        def query(self):
            raise RuntimeError("device")

        def synchronize(self):
            raise RuntimeError("device")

    called, has_come = [], threading.Event()
    copies.call_after(Failed(), lambda: called.append(1))
    copies.call_after(streams.record(Stream.OUT), has_come.set)
    streams.run_all()
    assert has_come.wait(5)
    assert called == []
