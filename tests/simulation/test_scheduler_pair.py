"""Two schedulers of a cell under kills, hangs, cut links and skewed clocks: a split is harmless and
ends, nothing is followed backwards, and the link of one process moves no cell."""

import pytest
from simulation.planted.mutant_pair import PLANTS, Plant
from simulation.processes.pair import history, one_bad_link

NUM_HISTORIES = 100
NUM_LINK_HISTORIES = 30


def found() -> set[str]:
    """Return what goes wrong in any history."""
    histories = (history(seed) for seed in range(NUM_HISTORIES))
    links = (one_bad_link(seed) for seed in range(NUM_LINK_HISTORIES))
    return {fault for one in (*histories, *links) for fault in one}


def test_a_pair_always_ends_with_one_active_scheduler() -> None:
    assert found() == set()


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert found()
