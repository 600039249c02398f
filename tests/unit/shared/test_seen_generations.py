"""What peers of schedulers remember, by cell."""

import pytest

from pagewire_shared.errors import StartupError, UnavailableError, WireError
from pagewire_shared.identity.ids import DEFAULT_CELL, check_cell_name
from pagewire_shared.identity.seen_generations import MAX_CELLS, SeenGenerations


def test_a_hello_carries_the_highest_generation_of_the_last_cell() -> None:
    seen = SeenGenerations()
    assert (seen.cell, seen.highest) == ("", 0)
    seen.meet("blue", 200)
    assert (seen.cell, seen.highest) == ("blue", 200)
    seen.meet("green", 100)
    assert (seen.cell, seen.highest) == ("green", 100)
    seen.meet("blue", 200)
    assert (seen.cell, seen.highest) == ("blue", 200)


def test_an_older_scheduler_of_a_cell_is_refused() -> None:
    seen = SeenGenerations()
    seen.meet("blue", 200)
    seen.meet("green", 300)
    with pytest.raises(UnavailableError, match="199 is older than 200"):
        seen.meet("blue", 199)
    assert (seen.cell, seen.highest) == ("blue", 200)


def test_an_invalid_generation_is_not_remembered() -> None:
    seen = SeenGenerations()
    seen.meet("blue", 200)
    with pytest.raises(WireError):
        seen.meet("blue", 2**63)
    assert (seen.cell, seen.highest) == ("blue", 200)


def test_it_remembers_a_few_cells() -> None:
    seen = SeenGenerations()
    for number in range(3 * MAX_CELLS):
        seen.meet(f"cell-{number}", 5)
    assert len(seen._highest) == MAX_CELLS
    assert seen.highest == 5


@pytest.mark.parametrize("name", [DEFAULT_CELL, "a", "prod/eu-1.blue_2"])
def test_valid_cell_names_are_accepted(name: str) -> None:
    check_cell_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a b", "ä", "x" * 129])
def test_invalid_cell_names_are_refused(name: str) -> None:
    with pytest.raises(StartupError, match="--cell"):
        check_cell_name(name)
