"""Extents never overlap, and what is freed comes together again."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pagewire_shared.kv.extents import GRANULE_BYTES, Extents

GRANULE = 4
NUM_GRANULES = 24
SIZES = st.integers(1, 9 * GRANULE)


class ExtentsMachine(RuleBasedStateMachine):
    """Compared with a row of granules, each taken by the extent at some offset or by none."""

    def __init__(self) -> None:
        super().__init__()
        self.extents = Extents(NUM_GRANULES * GRANULE, GRANULE)
        self.owners: list[int | None] = [None] * NUM_GRANULES

    def free_runs(self, owners: list[int | None]) -> list[tuple[int, int]]:
        """(length, start) of runs of free granules."""
        runs: list[tuple[int, int]] = []
        for index, owner in enumerate(owners):
            if owner is None and index and owners[index - 1] is None:
                length, start = runs.pop()
                runs.append((length + 1, start))
            elif owner is None:
                runs.append((1, index))
        return runs

    def offsets(self) -> list[int]:
        return sorted({owner for owner in self.owners if owner is not None})

    @rule(num_bytes=SIZES)
    def allocate(self, num_bytes: int) -> None:
        length = self.extents.rounded(num_bytes) // GRANULE
        fitting = [run for run in self.free_runs(self.owners) if run[0] >= length]
        offset = self.extents.allocate(num_bytes)
        if not fitting:
            assert offset is None
            return
        start = min(fitting)[1]
        assert offset == start * GRANULE
        self.owners[start : start + length] = [offset] * length

    @precondition(lambda self: self.offsets())
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.offsets()))
        self.extents.free(offset)
        self.owners = [None if owner == offset else owner for owner in self.owners]

    @rule(data=st.data(), num_bytes=SIZES)
    def choose_to_free(self, data: st.DataObject, num_bytes: int) -> None:
        offsets = data.draw(st.permutations(self.offsets()))
        num_freed = data.draw(st.integers(0, len(offsets)))
        num_staying = data.draw(st.integers(0, len(offsets) - num_freed))
        freed, candidates = offsets[:num_freed], offsets[num_freed + num_staying :]
        chosen = self.extents.choose_to_free(num_bytes, freed, candidates)

        def largest(gone: set[int]) -> int:
            owners = [None if owner in gone else owner for owner in self.owners]
            return max((run[0] for run in self.free_runs(owners)), default=0) * GRANULE

        size = self.extents.rounded(num_bytes)
        if chosen is None:
            assert largest({*freed, *candidates}) < size
            return
        assert set(chosen) <= set(candidates)
        assert largest({*freed, *chosen}) >= size
        if chosen:
            before_last = candidates[: candidates.index(chosen[-1])]
            assert largest({*freed, *before_last}) < size, "a later one was chosen than needed"
            for each in chosen:
                others = {*freed, *chosen} - {each}
                assert largest(others) < size, "one was chosen that is not needed"

    @precondition(lambda self: None in self.owners)
    @rule(data=st.data())
    def free_what_is_free(self, data: st.DataObject) -> None:
        free = [index for index, owner in enumerate(self.owners) if owner is None]
        with pytest.raises(AssertionError, match="no extent"):
            self.extents.free(data.draw(st.sampled_from(free)) * GRANULE)

    @invariant()
    def same_space(self) -> None:
        runs = self.free_runs(self.owners)
        assert self.extents.free_bytes == sum(length for length, _ in runs) * GRANULE
        assert self.extents.largest_free == max((r[0] for r in runs), default=0) * GRANULE

    def teardown(self) -> None:
        for offset in self.offsets():
            self.extents.free(offset)
        assert self.extents.allocate(NUM_GRANULES * GRANULE) == 0


ExtentsMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestExtents = ExtentsMachine.TestCase


def test_the_smallest_extent_that_fits_is_taken_and_the_lowest_of_equals() -> None:
    extents = Extents(100, 10)
    offsets = [extents.allocate(size) for size in (30, 10, 20, 10, 20, 10)]
    assert offsets == [0, 30, 40, 60, 70, 90]
    for offset in (70, 40, 0):
        extents.free(offset)
    assert [extents.allocate(15) for _ in range(3)] == [40, 70, 0]


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([50, 20, 40, 30], [50, 40, 30]),
        ([20, 50, 40, 30], [20, 40, 30]),
        ([80, 0, 20, 60, 30, 10], [0, 20, 10]),
    ],
)
def test_the_last_candidates_of_a_long_run_are_spared(
    candidates: list[int], chosen: list[int]
) -> None:
    extents = Extents(100, 10)
    for _ in range(10):
        extents.allocate(10)
    assert extents.choose_to_free(30, [], candidates) == chosen


def test_sizes_are_rounded_up() -> None:
    extents = Extents(2 * GRANULE_BYTES)
    assert extents.allocate(1) == 0
    assert extents.allocate(GRANULE_BYTES) == GRANULE_BYTES
    assert extents.allocate(1) is None


def test_freeing_an_extent_twice_is_refused() -> None:
    extents = Extents(100, 10)
    extents.allocate(20)
    with pytest.raises(AssertionError, match="no extent is allocated at 10"):
        extents.free(10)
    extents.free(0)
    with pytest.raises(AssertionError, match="no extent is allocated at 0"):
        extents.free(0)
