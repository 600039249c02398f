"""The short form of `make mutants`, and that the list as a whole can still be planted."""

import importlib.util
from pathlib import Path

import pytest
from simulation.coverage import INVARIANTS
from simulation.group.world import GROUP_INVARIANTS
from simulation.mutants import hunt_apart
from simulation.planted.mutant import Mutant
from simulation.planted.mutant_links import LINKS
from simulation.planted.mutant_list import MUTANTS, REAL, SHORT

MAX_SECONDS = 45.0
"""With the grace for the last seed less than what a test may take."""
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", SHORT)
def test_a_planted_bug_is_found(name: str) -> None:
    outcome = hunt_apart(BY_NAME[name], 60, MAX_SECONDS)
    assert outcome["seed"] is not None, outcome["detail"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_what_is_there(mutant: Mutant) -> None:
    for module, before, after in mutant.patches:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        count = Path(spec.origin).read_text().count(before)
        assert count == 1, f"{module} says {count} times {before!r}"
        assert before != after
    assert mutant.caught_by
    assert mutant.caught_by <= {*INVARIANTS, *GROUP_INVARIANTS, "no_crash"}


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) == len(BY_NAME) >= 25
    assert len(LINKS) >= 5
    assert len(REAL) == 5
    assert set(SHORT) <= set(BY_NAME)
