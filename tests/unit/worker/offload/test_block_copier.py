"""Copies of loaded blocks: which are made, and their bounds."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from pagewire_shared.errors import UnavailableError
from pagewire_shared.kv.copies import BlockCopies
from pagewire_shared.kv.load import LoadOrder
from pagewire_worker.offload import block_copier
from pagewire_worker.offload.block_copier import AGAIN_SECONDS, BlockCopier
from pagewire_worker.offload.connector import BlockPlacement
from pagewire_worker.offload.unsent_blocks import MAX_COPIES, UnsentBlock, UnsentBlocks

NAMES = tuple(bytes([index]) * 16 for index in range(4))


class Connector:
    """Says which names are missing, or fails."""

    def __init__(self):
        self.held = set()
        self.error = None
        self.asked = []

    async def missing(self, blocks):
        self.asked.append([name for name, _ in blocks])
        if self.error is not None:
            raise self.error
        return frozenset(name for name, _ in blocks) - self.held


class Offloader:
    """Takes what is to be copied out."""

    def __init__(self):
        self.entries = []

    def offer_copies(self, entries, is_named):
        self.entries += [entry for entry in entries if is_named(entry.block, entry.name)]


class Blocks:
    """The blocks of a replica: all but `gone` have their names."""

    gone: frozenset[int] = frozenset()

    def is_named(self, block, name):
        return block not in self.gone


class Case:
    def __init__(self):
        self.now = 0.0
        self.connector, self.offloader, self.blocks = Connector(), Offloader(), Blocks()
        self.pool = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        self.copier = BlockCopier(
            connector=self.connector,
            offloader=self.offloader,
            blocks=self.blocks,
            submit=lambda job: loop.run_in_executor(self.pool, job),
            clock=lambda: self.now,
        )
        self.copier.num_copies = 2
        self.running = asyncio.create_task(self.copier.run())

    def take(self, holders, stripes=(7, 7, 7, 7), num_blocks=4, tenant="me"):
        copies = BlockCopies(("a", "b"), tuple(holders), tuple(stripes), tenant)
        order = LoadOrder(
            load_id=1, store="a", names=NAMES, blocks=(5, 6, 7, 8), timeout_ms=1, copies=copies
        )
        self.copier.take(order, num_blocks)

    async def settled(self):
        await asyncio.sleep(0.05)
        return [entry.block for entry in self.offloader.entries]


@pytest.fixture
async def case():
    made = Case()
    yield made
    made.running.cancel()
    made.pool.shutdown()


async def test_blocks_with_too_few_copies_get_them(case):
    case.take([0b01, 0b11, 0b10, 0b01], num_blocks=3)
    assert await case.settled() == [5, 7]
    entry = case.offloader.entries[0]
    assert (entry.name, entry.tenant, entry.is_copy) == (NAMES[0], "me", True)
    assert entry.placement == BlockPlacement(7, 1, frozenset("a"))


async def test_nothing_is_asked_where_nothing_is_lacking(case):
    case.take([0b11] * 4)
    case.take([0b01] * 4, stripes=())
    case.copier.num_copies = 1
    case.take([0b01] * 4)
    assert await case.settled() == []
    assert case.connector.asked == []


async def test_what_a_store_has_by_now_is_not_copied_out(case):
    case.connector.held = {NAMES[0], NAMES[1]}
    case.blocks.gone = frozenset({7})
    case.take([0b01] * 4)
    assert await case.settled() == [8]


async def test_a_block_is_not_copied_again_and_again(case):
    case.take([0b01] * 4)
    case.take([0b01] * 4)
    assert await case.settled() == [5, 6, 7, 8]
    case.now = AGAIN_SECONDS
    case.take([0b01] * 4, num_blocks=1)
    assert await case.settled() == [5, 6, 7, 8, 5]


async def test_a_failure_costs_these_copies_only(case):
    case.connector.error = UnavailableError("gone")
    case.take([0b01] * 4, num_blocks=1)
    await case.settled()
    case.connector.error = None
    case.now = AGAIN_SECONDS
    case.take([0b01] * 4, num_blocks=1)
    assert await case.settled() == [5]


async def test_few_loads_wait(case, monkeypatch):
    case.running.cancel()
    monkeypatch.setattr(block_copier, "AGAIN_SECONDS", 0.0)
    for _ in range(3 * block_copier.MAX_LOADS):
        case.take([0b01] * 4)
    assert case.copier._waiting.qsize() == block_copier.MAX_LOADS


def test_copies_wait_behind_new_blocks_and_are_bounded() -> None:
    unsent = UnsentBlocks(is_writeback=True)
    placement = BlockPlacement(1, 1, frozenset("a"))
    taken = [
        unsent.add_copy(UnsentBlock(block, b"n", None, -1, placement))
        for block in range(MAX_COPIES + 3)
    ]
    assert taken.count(True) == MAX_COPIES
    unsent.add(UnsentBlock(5, b"m", None, 0))
    assert (unsent.num_ready, len(unsent)) == (MAX_COPIES - 1, MAX_COPIES)
    unsent.leave([0])
    assert [entry.block for entry in unsent.take_ready(3)] == [5, 0, 1]
    assert unsent.drop_copies([2, 3, 9999]) == 2
    assert unsent.pop([4]) == [], "a copy is not worth a flush"
