"""Sliding windows: blocks that no later step reads come free, and nothing else does."""

import itertools

import pytest
from unit.scheduler.cell import Cell, finished

from pagewire_scheduler.core.audit import audit
from pagewire_scheduler.core.blocks.cache_groups import RELEASED, CacheGroups
from pagewire_scheduler.core.blocks.prefix_cache import NameChain, PrefixCache, find_prefix
from pagewire_scheduler.core.data.events import FinishedEvent, RejectedEvent
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan

BLOCK_SIZE = 4


def held(cell: Cell) -> int:
    pool = cell.core.workers[cell.info.worker_id].pool
    return pool.num_blocks - pool.num_free


class WindowCell(Cell):
    """A cell in which every plan finds the blocks that it reads."""

    def plan(self) -> StepPlan | None:
        plan = super().plan()
        if plan is None:
            return None
        (window,) = self.info.groups.windows
        assert window is not None
        for sequence in self.core.workers[self.info.worker_id].running:
            assert sequence.table is not None
            # Counted from the first position that it computes.
            first = max(0, plan.starts[0] - window + 1) // BLOCK_SIZE
            assert RELEASED not in sequence.table.blocks[first:]
        return plan


@pytest.mark.parametrize("window", [1, 4, 7, 8, 13])
@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_a_long_text_holds_the_blocks_of_its_window_only(window: int, steps_in_flight: int) -> None:
    cell = WindowCell(
        groups=CacheGroups((window,)),
        num_blocks=40,
        steps_in_flight=steps_in_flight,
        max_num_batched_tokens=8,
    )
    cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=25))
    most = 0
    ends: list[FinishedEvent] = []
    for events in cell.turns():
        ends += finished(events)
        most = max(most, held(cell))
    assert ends[0].num_tokens == 25
    # Window, and what the steps under way compute.
    assert most <= -(-window // BLOCK_SIZE) + 2 + steps_in_flight * 2
    assert held(cell) == 0


def test_a_text_longer_than_the_pool_runs_when_its_window_fits() -> None:
    cell = Cell(groups=CacheGroups((8,)), num_blocks=8, max_num_batched_tokens=8)
    assert not cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=30))
    assert [end.num_tokens for end in finished(cell.run())] == [30]


def test_a_window_larger_than_the_pool_is_refused() -> None:
    cell = Cell(groups=CacheGroups((30,)), num_blocks=8)
    (event,) = cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=30))
    assert isinstance(event, RejectedEvent)


def test_three_long_texts_share_a_small_pool() -> None:
    cell = Cell(groups=CacheGroups((8,)), num_blocks=9, max_num_batched_tokens=16)
    for number in (1, 2, 3):
        cell.submit(number, [number] * 30, sampling=SamplingParams(max_tokens=30))
    ends = finished(cell.run())
    assert sorted((end.handle, end.num_tokens) for end in ends) == [(1, 30), (2, 30), (3, 30)]
    assert held(cell) == 0


def test_a_prefix_is_found_from_the_root_only() -> None:
    cell = Cell(
        groups=CacheGroups((8,)), num_blocks=40, steps_in_flight=1, max_num_batched_tokens=64
    )
    cell.submit(1, [*range(1, 31)], sampling=SamplingParams(max_tokens=1))
    cell.answer(cell.planned())
    cell.submit(2, [*range(1, 31), 7], sampling=SamplingParams(max_tokens=1))
    plan = cell.planned()
    assert plan.starts == [28]
    cell.answer(plan)
    # The first block is used for something else: nothing of the rest is found any more.
    pool = cell.core.workers[cell.info.worker_id].pool
    first = next(block for block, name in enumerate(pool.names) if name is not None)
    pool.unname(first)
    cell.submit(3, [*range(1, 31), 8], sampling=SamplingParams(max_tokens=1))
    assert cell.planned().starts == [0]


MIXED = CacheGroups((None, 8, 3))


@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_a_windowed_group_keeps_its_window_beside_a_full_one(steps_in_flight: int) -> None:
    settings = {"num_blocks": 60, "steps_in_flight": steps_in_flight, "max_num_batched_tokens": 4}
    cell = Cell(groups=MIXED, **settings)
    cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=25))
    most = [0, 0, 0]
    ends: list[FinishedEvent] = []
    for events in cell.turns():
        ends += finished(events)
        [pool] = audit(cell.core).pools
        most = [max(*pair) for pair in zip(most, (g.most_held for g in pool.groups), strict=True)]
    assert [end.num_tokens for end in ends] == [25]
    full, *windowed = most
    assert full == -(-54 // BLOCK_SIZE)
    for num_held, window in zip(windowed, (8, 3), strict=True):
        assert num_held <= -(-window // BLOCK_SIZE) + 1 + steps_in_flight
    assert held(cell) == 0


def test_a_pool_holds_what_the_groups_keep() -> None:
    """14 blocks of all positions, 4 of a window of 8 and 3 of one of 3 tokens."""
    for num_blocks, is_enough in ((21, True), (20, False)):
        cell = Cell(groups=MIXED, num_blocks=num_blocks, max_num_batched_tokens=16)
        events = cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=27))
        assert [isinstance(event, RejectedEvent) for event in events] == [True] * (not is_enough)
        if is_enough:
            assert [end.num_tokens for end in finished(cell.run())] == [27]


@pytest.mark.parametrize(
    ("missing", "length"),
    [
        ([], 7),
        ([(1, 0), (2, 4)], 7),  # before the windows of a prefix of 7 blocks
        ([(2, 6)], 6),
        ([(1, 5)], 5),
        ([(1, 5), (2, 4)], 4),
        ([(0, 2)], 2),
        ([(0, 2), (1, 1), (1, 0)], 0),
    ],
)
def test_a_prefix_reaches_as_far_as_all_groups_have_what_its_next_token_reads(
    missing: list[tuple[int, int]], length: int
) -> None:
    cache, chain = PrefixCache(), NameChain(BlockName(b"r" * 16), BLOCK_SIZE)
    tokens = [*range(7 * BLOCK_SIZE + 1)]
    places = list(itertools.product(range(3), range(7)))
    for block, (group, index) in enumerate(places):
        if (group, index) not in missing:
            cache.put(chain.name_in(group, index, tokens), block)
    prefix = find_prefix(cache, chain, tokens, MIXED)
    assert len(prefix) == length
    firsts = [0, *(max(0, length * BLOCK_SIZE - window + 1) // BLOCK_SIZE for window in (8, 3))]
    for group, (blocks, first) in enumerate(zip(prefix.groups, firsts, strict=True)):
        own = [places.index((group, index)) for index in range(first, length)]
        assert blocks == [RELEASED] * first + own
