"""Random histories of steps, offloads, loads and reads over one pool, on a device that runs as
late, and in any order, as its events allow.

Each write gives a block a number of its own, in all its bytes: who reads something else read too
early or too late.
"""

import random
from collections import deque
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.batch.slots import SlotLimits
from pagewire_worker.kv.block_memory import CacheBlocks
from pagewire_worker.kv.block_observer import BlockObservers
from pagewire_worker.kv.device_copies import CopyOrder
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.stream_copies import Stream, StreamCopies
from pagewire_worker.offload.block_offloader import BlockOffloader
from pagewire_worker.runner.model_runner import ModelRunner
from support.cells.worker_driver import request
from support.kernels.fake_streams import FakeStreams

NUM_BLOCKS, NUM_LAYERS, NUM_ACTIONS = 12, 2, 150
BLOCK_BYTES = 128 * NUM_LAYERS
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
        self.cache = KvCache(
            shape=SHAPE,
            num_blocks=NUM_BLOCKS,
            block_size=4,
            device=CPU,
            dtype=torch.float32,
            has_whole_blocks=True,
        )
        self.outlet = Outlet()
        self.offloader = BlockOffloader(CacheBlocks(self.cache), copies=self.copies)
        self.offloader.connect(self.outlet)
        self.offloader.follow(plan(new_sequences=[request(0)]))
        self.model_runner = ModelRunner(
            backend=SimpleNamespace(kv_cache=self.cache),
            limits=SlotLimits(
                num_slots=1,
                num_blocks=NUM_BLOCKS,
                block_size=4,
                max_model_len=16,
                vocab_size=8,
                windows=(None,),
            ),
            max_num_batched_tokens=8,
            device=CPU,
            observer=BlockObservers(self.offloader, CopyOrder(self.copies)),
            copies=self.copies,
        )
        self.numbers = dict.fromkeys(range(NUM_BLOCKS), 0)
        self.steps = deque()
        self.count = 0

    def run(self):
        actions = (
            self.step,
            self.copy_blocks,
            self.load,
            self.load_layers,
            self.turn,
            self.settle,
            self.read,
        )
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
        self.model_runner._observer.follow(plan())
        self.model_runner.blocks.overwrite(written)
        expected = {block: self.numbers[block] for block in read}
        self.streams.enqueue(Stream.COMPUTE, partial(self.check_blocks, expected))
        for block, number in zip(written, numbers, strict=True):
            self.streams.enqueue(Stream.COMPUTE, partial(self.fill, block, number))
            self.numbers[block] = number
        self.steps.append((set(read) | set(written), self.streams.record(Stream.COMPUTE)))
        names = [name_of(number) for number in numbers]
        done = plan(named_blocks=written, names=names, named_slots=[0] * count)
        assert self.model_runner._promise_names(done)
        self.model_runner._keep_names(done)

    def copy_blocks(self):
        """Copy blocks within the pool, by a step whose result waits for nothing."""
        source, destination = self.dice.sample(range(NUM_BLOCKS), 2)
        self.model_runner._observer.follow(
            plan(copy_sources=[source], copy_destinations=[destination])
        )
        self.model_runner.blocks.overwrite([destination])
        blocks = torch.tensor([source]), torch.tensor([destination])
        self.streams.enqueue(Stream.COMPUTE, partial(self.cache.copy_blocks, *blocks))
        self.numbers[destination] = self.numbers[source]

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
        self.model_runner.blocks.load_blocks(blocks, names, payloads, self.offloader.load_staging)

    def load_layers(self):
        blocks, numbers, names = self.loaded(2)
        if not blocks:
            return
        self.model_runner.blocks.begin_load(blocks)
        side = np.repeat(np.array(numbers, np.float32), 16)
        for layer in range(NUM_LAYERS):
            payload = torch.from_numpy(np.concatenate((side, side))).view(torch.uint8)
            self.model_runner.blocks.load_layers(blocks, layer, 1, payload)
        self.model_runner.blocks.name_loaded(blocks, names)

    def turn(self):
        self.offloader.turn(is_idle=True)

    def settle(self):
        while self.outlet.batches:
            self.offloader.finish_put(self.outlet.batches.popleft(), None, False)

    def read(self):
        """Copy named blocks out, as digests do."""
        names = list(self.model_runner.blocks.held_names().values())
        some = self.dice.sample(names, min(2, len(names)))
        staging = torch.zeros((2, self.cache.bytes_per_block), dtype=torch.uint8)
        for row, index in enumerate(self.model_runner.blocks.copy_out(some, staging)):
            check(staging[row].view(torch.float32), number_of(some[index]))


def plan(**fields):
    return StepPlan(generation=1, incarnation=1, step_id=1, **fields)


def name_of(number):
    return number.to_bytes(16, "little")
