"""Which drafts are worth their time, by curves of times that are made up."""

import pytest

from pagewire_worker.speculation.chances import Chances
from pagewire_worker.speculation.step_costs import StepCosts


def curve(*points, pause=0.0):
    costs = StepCosts(points)
    costs.note_beside(0.0, has_drafts=False)
    costs._beside_drafts.seconds = pause
    return costs


FLAT = [(1, 1.0), (2, 1.02), (4, 1.05), (8, 1.1), (64, 2.0)]
STEEP = [(1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0), (64, 64.0)]


def chosen(costs, num_rows, chances, lengths):
    return costs.choose(num_rows, alike(chances), lengths)


def alike(chances):
    """Return chances of which the first and the later ones are alike."""
    return [Chances(one, one) for one in chances]


def test_free_rows_are_filled_and_costly_ones_are_not():
    assert chosen(curve(*FLAT), 1, [0.9], [5]) == [5]
    assert chosen(curve(*STEEP), 1, [0.9], [5]) == [0]
    assert curve(*FLAT).may_gain(1, 5)
    assert not curve(*STEEP).may_gain(1, 5)


def test_an_unlikely_draft_is_not_worth_its_row():
    assert chosen(curve(*FLAT), 1, [0.01], [5]) == [0]
    half = [(1, 1.0), (2, 1.3), (4, 1.9), (64, 19.9)]
    assert chosen(curve(*half), 1, [0.35], [5]) == [1]


def test_likelier_drafts_come_first():
    found = chosen(curve((1, 1.0), (2, 1.0), (3, 1.1), (4, 1.6), (64, 30.0)), 2, [0.3, 0.9], [3, 3])
    assert found[1] > found[0]


def test_steps_with_a_long_pause_are_not_worth_it():
    assert chosen(curve(*FLAT, pause=5.0), 1, [0.9], [5]) == [0]


def test_drafts_behind_a_step_under_way_are_worth_less():
    """There are two pauses in the place of one."""
    costs = curve(*FLAT, pause=0.6)
    for is_held, expected in ((True, True), (False, False)):
        found = costs.choose(1, alike([0.5]), [5], is_held=is_held)
        assert any(found) == expected


def test_a_step_whose_rows_cost_nothing_up_to_a_tile_takes_the_whole_tile():
    """One row more costs as much as seven more: the best part is looked for behind the first."""
    tiles = [(1, 1.0), (2, 1.7), (8, 1.7), (64, 13.6)]
    assert chosen(curve(*tiles), 1, [0.95], [7]) == [7]


def test_the_curve_follows_the_steps_that_run():
    costs = curve(*FLAT)
    for _ in range(200):
        costs.note_step(1, 2.0)
        costs.note_step(3, 4.0)
    assert costs.seconds(1) == pytest.approx(2.0, rel=0.01)
    assert costs.seconds(3) == pytest.approx(4.0, rel=0.01)
    times = [costs.seconds(rows) for rows in range(1, 100)]
    assert times == sorted(times)


def test_one_interrupted_step_hardly_moves_the_curve():
    costs = curve(*FLAT)
    costs.note_step(1, 1000.0)
    costs.note_beside(1000.0, has_drafts=True)
    assert costs.seconds(1) <= 1.1
    assert costs.pause_seconds == 0.0


def test_rows_beyond_the_curve_cost_as_its_end():
    assert curve(*STEEP).seconds(128) == pytest.approx(128.0)
    assert curve((1, 0.5)).seconds(4) == pytest.approx(2.0)


def test_drafts_that_have_to_be_computed_are_fewer():
    costs = curve(*FLAT)
    found = [
        costs.choose(1, alike([0.8]), [5], draft_seconds=one)[0] for one in (0.0, 0.2, 0.4, 1.0)
    ]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (5, 0)
    # A small step makes one draft of every sequence.
    assert costs.choose(8, alike([0.8] * 8), [1] * 8, draft_seconds=0.2) == [1] * 8


def test_drafts_behind_a_likely_wrong_one_have_their_own_chance():
    """Where a first right draft means that all are right, as many as there are pay."""
    rows = [(1, 1.0), (2, 1.2), (6, 2.0), (64, 14.0)]
    assert curve(*rows).choose(1, [Chances(0.5, 0.98)], [5]) == [5]
    assert curve(*rows).choose(1, [Chances(0.5, 0.5)], [5]) != [5]


def test_drafts_are_computed_while_the_plan_is_awaited():
    waiting = curve(*FLAT, pause=1.0)
    chances = alike([0.9])
    for seconds in (0.0, 0.2):
        assert waiting.choose(1, chances, [5], draft_seconds=seconds) == [5]
    assert waiting.choose(1, chances, [5], draft_seconds=0.6) != [5]


def test_a_plan_that_came_before_its_drafts_can_only_shorten_the_wait():
    costs = curve((1, 1.0))
    for seconds in (0.004, 0.004, 0.018):
        costs.note_beside(seconds, has_drafts=True, is_most=seconds > 0.01)
    assert costs.pause_seconds == pytest.approx(0.004)
    for _ in range(30):
        costs.note_beside(0.002, has_drafts=True, is_most=True)
    assert costs.pause_seconds < 0.003
