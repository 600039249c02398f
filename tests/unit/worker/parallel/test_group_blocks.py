"""Blocks of ranks: joined they are the bytes of one process, and each rank gets its part back."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from pagewire_worker.backend.collectives import RankLostError, RankTopology
from pagewire_worker.kv.block_memory import CacheBlocks
from pagewire_worker.kv.kv_cache import CacheShape, KvCache, LayerGroup
from pagewire_worker.offload.block_offloader import BlockOffloader
from pagewire_worker.offload.connector import BlockPlacement
from pagewire_worker.offload.put_batch import PutBatch
from pagewire_worker.offload.unsent_blocks import UnsentBlock
from pagewire_worker.parallel.group_blocks import GroupBlocks, RankBlocks
from pagewire_worker.parallel.group_memory import GroupMemory
from pagewire_worker.parallel.messages import decode
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.parallel.shared_collectives import SharedCollectives
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import wait_until

pytestmark = needs_kernels

BLOCK_SIZE = 4
NUM_BLOCKS = 9
SLOT_BYTES = 1024
"""So few that most copies go in pieces."""
TAKEN = [7, 0, 3, 4, 8]

GROUPS = (LayerGroup((0, 3)), LayerGroup((1, 4), 16), LayerGroup((2,), 16))


@dataclass(frozen=True, slots=True)
class Case:
    """A model and its ranks.

    Attributes:
        heads: KV heads of each rank of a stage.
        layers: Of each stage, the first one first.
    """

    shape: CacheShape
    heads: Sequence[Sequence[int]]
    layers: Sequence[Sequence[int]] = ()
    dtype: torch.dtype = torch.float32
    has_heads_apart: bool = False

    @property
    def num_stages(self) -> int:
        return max(1, len(self.layers))

    def place(self, rank: int) -> RankTopology:
        return RankTopology.of(rank, len(self.heads), self.num_stages)


FOUR = CacheShape(num_layers=3, num_kv_heads=4, head_dim=8)
CASES = {
    "two ranks": Case(FOUR, [[0, 1], [2, 3]]),
    "four ranks": Case(FOUR, [[0], [1], [2], [3]], dtype=torch.bfloat16),
    "shared heads": Case(replace(FOUR, num_kv_heads=2), [[0], [0], [1], [1]]),
    "one head": Case(replace(FOUR, num_kv_heads=1), [[0], [0]]),
    "latents": Case(CacheShape(3, 1, 12, latent_dim=8), [[0], [0]]),
    "kernels": Case(FOUR, [[0, 1], [2, 3]], has_heads_apart=True),
    "kernels of four ranks": Case(FOUR, [[0], [1], [2], [3]], has_heads_apart=True),
    "scales": Case(FOUR, [[0, 1], [2, 3]], dtype=torch.int8, has_heads_apart=True),
    "cache groups": Case(CacheShape(5, 4, 8, groups=GROUPS), [[0, 1], [2, 3]]),
    "stages": Case(FOUR, [[0, 1, 2, 3]], [[0, 1], [2]]),
    "three stages": Case(replace(FOUR, window=24), [[0, 1, 2, 3]], [[0], [1], [2]]),
    "stages of ranks": Case(FOUR, [[0, 1], [2, 3]], [[0, 1], [2]]),
    "stages of kernels": Case(FOUR, [[0, 1], [2, 3]], [[0, 1], [2]], has_heads_apart=True),
    "stages of shared heads": Case(replace(FOUR, num_kv_heads=1), [[0], [0]], [[0, 1], [2]]),
    "stages of latents": Case(CacheShape(3, 1, 12, latent_dim=8), [[0], [0]], [[0, 1], [2]]),
}


def make_cache(shape: CacheShape, dtype: torch.dtype, seed: int) -> KvCache:
    """Return a cache of random bytes."""
    cache = KvCache(
        shape=shape,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        device=torch.device("cpu"),
        dtype=dtype,
    )
    generator = torch.Generator().manual_seed(seed)
    for layer in cache.stored:
        for part in layer.parts:
            raw = part.view(torch.uint8)
            raw.copy_(torch.randint(0, 256, raw.shape, generator=generator, dtype=torch.uint8))
    return cache


def parts_of(cache: KvCache, case: Case, rank: int) -> list[Tensor]:
    """Return the parts of the whole cache that a rank has, as bytes."""
    place = case.place(rank)
    layers = case.layers[place.stage] if case.layers else range(len(cache.stored))
    heads = list(case.heads[place.tp_rank])
    found = [part for layer in layers for part in cache.stored[layer].parts]
    return [by_head(part, case)[:, :, heads] for part in found]


def by_head(part: Tensor, case: Case) -> Tensor:
    """Return the bytes of keys or values with the heads in the third dimension."""
    raw = part.view(torch.uint8)
    num_blocks, block_size, heads, size = raw.shape
    return raw.view(num_blocks, 1, heads, block_size * size) if case.has_heads_apart else raw


def bytes_of(cache: KvCache, case: Case) -> list[Tensor]:
    return [by_head(part, case) for layer in cache.stored for part in layer.parts]


class Ranks:
    """The ranks of a case in threads, each with a cache of its own. The processes of a group."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.size = len(case.heads) * case.num_stages
        self._memory = GroupMemory(self.size, slot_bytes=SLOT_BYTES, num_stages=case.num_stages)
        self.views = [
            SharedCollectives(self._memory, case.place(rank), 5000) for rank in range(self.size)
        ]
        self.caches = [make_cache(self._shape(rank), case.dtype, rank) for rank in range(self.size)]
        self.dying: int | None = None
        self._num_followed = [0] * self.size
        self._threads = [
            threading.Thread(target=self._follow, args=(rank,), daemon=True)
            for rank in range(1, self.size)
        ]

    def _shape(self, rank: int) -> CacheShape:
        case, place = self.case, self.case.place(rank)
        heads = len(case.heads[place.tp_rank])
        num_layers = len(case.layers[place.stage]) if case.layers else case.shape.num_layers
        return replace(case.shape, num_kv_heads=heads, num_layers=num_layers)

    def blocks(self, rank: int) -> RankBlocks:
        return RankBlocks(
            self.caches[rank],
            self.case.shape,
            self.views[rank],
            has_heads_apart=self.case.has_heads_apart,
        )

    def _follow(self, rank: int) -> None:
        blocks, view = self.blocks(rank), self.views[rank]
        with contextlib.suppress(RankLostError):
            while True:
                message = decode(view.receive())
                if rank == self.dying:
                    view.lose(rank)
                blocks.follow(message.command, message.arrays)
                self._num_followed[rank] += 1

    def wait_for(self, num_messages: int) -> None:
        """Return when all other ranks have followed so many messages."""
        wait_until(lambda: min(self._num_followed[1:]) == num_messages, 10, "ranks follow")

    @property
    def links(self) -> tuple[socket.socket, ...]:
        return ()  # nothing is asked beside steps

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ended(self) -> tuple[int, str] | None:
        return None

    def close(self) -> None:
        for thread in self._threads:
            thread.join(10)

    def unmap(self) -> None:
        """Give the memory back; rank 0 may use it until its group is closed."""
        for view in self.views:
            view.close()
        self._memory.close_file()
        self._memory.unmap()


@contextlib.contextmanager
def grouped(case: Case) -> Iterator[tuple[GroupBlocks, Ranks]]:
    ranks = Ranks(case)
    group = RankGroup(ranks.views[0], ranks)
    try:
        yield GroupBlocks(ranks.caches[0], ranks.blocks(0), group), ranks
    finally:
        group.close()
        ranks.unmap()


def fill(ranks: Ranks, whole: KvCache) -> None:
    """Give each rank its part of a whole cache."""
    for rank, cache in enumerate(ranks.caches):
        for mine, part in zip(
            bytes_of(cache, ranks.case), parts_of(whole, ranks.case, rank), strict=True
        ):
            mine.copy_(part)


@pytest.mark.parametrize("name", CASES)
def test_joined_blocks_are_those_of_one_process(name: str) -> None:
    case = CASES[name]
    whole = make_cache(case.shape, case.dtype, 100)
    alone = CacheBlocks(whole)
    index = torch.tensor(TAKEN)
    with grouped(case) as (blocks, ranks):
        fill(ranks, whole)
        assert blocks.layout() == alone.layout()
        assert blocks.bytes_per_block == alone.bytes_per_block
        staging = torch.zeros((7, alone.bytes_per_block), dtype=torch.uint8)
        found = blocks.read(TAKEN, staging)
        assert torch.equal(found, alone.read(TAKEN, torch.zeros_like(staging)))
        assert not staging[len(TAKEN) :].any()
        size = alone.bytes_per_block // alone.num_layers * len(TAKEN)
        for first in range(alone.num_layers):
            for count in range(1, alone.num_layers - first + 1):
                payload, expected = torch.zeros((2, count * size), dtype=torch.uint8)
                blocks.read_layers(index, first, count, payload)
                alone.read_layers(index, first, count, expected)
                assert torch.equal(payload, expected)


@pytest.mark.parametrize("is_layered", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_each_rank_gets_its_part(name: str, is_layered: bool) -> None:
    case = CASES[name]
    whole, source = (make_cache(case.shape, case.dtype, seed) for seed in (100, 101))
    alone, given = CacheBlocks(whole), CacheBlocks(source)
    into = [1, 8, 6, 0, 3]
    with grouped(case) as (blocks, ranks):
        fill(ranks, whole)
        for receiver in (blocks, alone):
            if not is_layered:
                staging = torch.zeros((len(into), given.bytes_per_block), dtype=torch.uint8)
                receiver.write(into, given.read(TAKEN, staging))
                continue
            size = given.bytes_per_block // given.num_layers * len(TAKEN)
            for first, count in ((0, 1), (1, given.num_layers - 1)):
                payload = torch.zeros(count * size, dtype=torch.uint8)
                given.read_layers(torch.tensor(TAKEN), first, count, payload)
                receiver.write_layers(torch.tensor(into), first, count, payload)
        ranks.wait_for(2 if is_layered else 1)
        for rank, cache in enumerate(ranks.caches):
            for mine, part in zip(bytes_of(cache, case), parts_of(whole, case, rank), strict=True):
                assert torch.equal(mine, part), rank


class Outlet:
    """Keeps what is to go to a store."""

    is_open = True

    def __init__(self) -> None:
        self.batches: list[PutBatch] = []

    def send(self, batch: PutBatch) -> None:
        self.batches.append(batch)


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_goes_to_a_store_is_whole(is_lost: bool, caplog: pytest.LogCaptureFixture) -> None:
    case = CASES["two ranks"]
    whole = make_cache(case.shape, case.dtype, 100)
    outlet = Outlet()
    with grouped(case) as (blocks, ranks):
        fill(ranks, whole)
        ranks.dying = 1 if is_lost else None
        offloader = BlockOffloader(blocks)
        offloader.connect(outlet)
        placement = BlockPlacement(0, held_by=frozenset(["unix:other"]))
        entries = [UnsentBlock(block, bytes(16), None, 0, placement) for block in TAKEN]
        offloader.offer_copies(entries, lambda block, name: True)
        assert not offloader.turn(is_idle=True)
    assert "Traceback" not in caplog.text
    found = [bytes(one.payload) for batch in outlet.batches for one in batch.blocks()]
    staging = torch.zeros((len(TAKEN), blocks.bytes_per_block), dtype=torch.uint8)
    expected = [bytes(row.numpy()) for row in CacheBlocks(whole).read(TAKEN, staging)]
    assert found == ([] if is_lost else expected)


def test_a_rank_that_is_lost_ends_the_copy() -> None:
    with grouped(CASES["two ranks"]) as (blocks, ranks):
        staging = torch.zeros((2, blocks.bytes_per_block), dtype=torch.uint8)
        ranks.dying = 1
        with pytest.raises(RankLostError, match="rank 1"):
            blocks.read([0, 1], staging)
        with pytest.raises(RankLostError, match="rank 1"):
            blocks.write([0, 1], staging)


def test_a_fault_of_rank_0_ends_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    with grouped(CASES["two ranks"]) as (blocks, ranks):
        staging = torch.zeros((1, blocks.bytes_per_block), dtype=torch.uint8)

        def failing(*arguments: object) -> tuple[Tensor, ...]:
            raise MemoryError("no room")

        monkeypatch.setattr(blocks._rank, "gather", failing)
        with pytest.raises(RankLostError, match="rank 0 failed in a copy of blocks: MemoryError"):
            blocks.read([0], staging)
        assert ranks.views[1].lost == 0
