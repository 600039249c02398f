"""The short form of `make mutants`, and that the list as a whole can still be planted."""

import importlib.util
from pathlib import Path

import pytest
from simulation.mutant import Mutant
from simulation.mutant_links import LINKS
from simulation.mutant_list import MUTANTS, REAL, SHORT
from simulation.mutants import hunt_apart

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", SHORT)
def test_a_planted_bug_is_found(name: str) -> None:
    outcome = hunt_apart(BY_NAME[name], 60)
    assert outcome["seed"] is not None, outcome["detail"]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_what_is_there(mutant: Mutant) -> None:
    for module, before, after in mutant.patches:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        assert before in Path(spec.origin).read_text(), f"{module} does not say {before!r}"
        assert before != after


def test_there_are_enough_mutants() -> None:
    assert len(MUTANTS) == len(BY_NAME) >= 25
    assert len(LINKS) >= 5
    assert len(REAL) == 5
    assert set(SHORT) <= set(BY_NAME)
