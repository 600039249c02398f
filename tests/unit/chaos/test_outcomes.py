"""Outcomes of faults: kept in a file, added up, and shown as a table."""

import random
from collections import Counter

import pytest
from chaos.__main__ import drawn
from chaos.outcomes import Outcome, Outcomes, read_outcomes, table, write_outcomes
from chaos.run import verdict


@pytest.mark.parametrize(
    ("found", "expected", "wrong"),
    [
        ("abc", "abc", ""),
        ("ab", "abc", "lost"),
        ("abbc", "abc", "doubled"),
        ("abd", "abc", "changed"),
        ("", "abc", "lost"),
    ],
)
def test_a_stream_is_judged_by_its_events(found: str, expected: str, wrong: str) -> None:
    assert verdict(found, expected) == wrong


def test_outcomes_accumulate_in_a_file(tmp_path) -> None:
    path = tmp_path / "outcomes.json"
    for run in range(2):
        outcomes = read_outcomes(path)
        assert len(outcomes.runs) == run
        outcomes.runs.append({"seed": run})
        one = outcomes.of(("worker", "kill -9"))
        one.faults += 1
        one.streams += 6
        one.lost += run
        one.gaps.update([3, 3, 140])
        write_outcomes(path, outcomes)
    [(cell, found)] = read_outcomes(path).cells.items()
    assert cell == ("worker", "kill -9")
    expected = Outcome(faults=2, streams=12, lost=1, gaps=Counter({3: 4, 140: 2}))
    assert found == expected
    assert not found.is_clean
    assert (found.gap(0.5), found.gap(0.99)) == (0.03, 1.4)


def test_the_table_has_a_row_for_all() -> None:
    cells = {
        ("worker", "kill -9"): Outcome(faults=2, streams=12, gaps=Counter({3: 4})),
        ("redis", "STOP"): Outcome(faults=1, streams=5, changed=1, gaps=Counter({9: 1})),
    }
    lines = table(Outcomes(cells=cells)).splitlines()
    assert lines[2] == "| redis | STOP | 1 | 5 | 0 | 0 | 0 | 1 | 0.09 s | 0.09 s |"
    assert lines[-1] == "| all |  | 3 | 17 | 0 | 0 | 0 | 1 | 0.03 s | 0.09 s |"
    assert len({line.count("|") for line in lines}) == 1


def test_cells_with_the_fewest_faults_are_filled_first() -> None:
    cells = [("worker", fault) for fault in "abcd"]
    tried = {cells[0]: 5, cells[1]: 3, cells[2]: 4, cells[3]: 3}
    dice = random.Random(1)
    assert Counter(drawn(cells, 5, dice, tried)) == {cells[1]: 2, cells[3]: 2, cells[2]: 1}
    assert Counter(drawn(cells, 9, dice, tried)) == dict(zip(cells, (1, 3, 2, 3), strict=True))
    assert drawn(cells, 6, random.Random(7)) == drawn(cells, 6, random.Random(7), {})
