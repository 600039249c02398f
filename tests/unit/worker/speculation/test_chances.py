"""What is known of drafts, after some were verified."""

import pytest

from pagewire_worker.speculation.chances import FIRST_CHANCES, Chances, SequenceChance


def test_a_wrong_first_draft_says_nothing_of_later_ones():
    chance = SequenceChance(FIRST_CHANCES)
    for _ in range(20):
        chance.note(5, 0, FIRST_CHANCES)
    assert chance.value().first < 0.1
    assert chance.value().later == pytest.approx(FIRST_CHANCES.later)


def test_later_drafts_are_those_behind_a_right_one():
    chance = SequenceChance(FIRST_CHANCES)
    for _ in range(50):
        chance.note(4, 2, FIRST_CHANCES)  # the third one was tried and wrong, the fourth not tried
    assert chance.value().first == pytest.approx(1.0, abs=0.01)
    assert chance.value().later == pytest.approx(0.5, abs=0.01)


def test_one_draft_tells_of_the_first_only():
    assert SequenceChance(FIRST_CHANCES).note(1, 1, Chances(0.5, 0.25)) == Chances(0.55, 0.25)


def test_new_sequences_start_with_what_others_had():
    prior = FIRST_CHANCES
    for _ in range(100):
        prior = SequenceChance(prior).note(5, 5, prior)
    assert prior.first > 0.99
    assert prior.later > 0.99
    assert SequenceChance(prior).value() == pytest.approx(prior)


def test_a_few_wrong_drafts_are_forgotten_and_many_are_not():
    few, many = SequenceChance(FIRST_CHANCES), SequenceChance(FIRST_CHANCES)
    for _ in range(40):
        few.note(2, 2, FIRST_CHANCES)
        many.note(2, 0, FIRST_CHANCES)
    for _ in range(5):
        few.note(2, 0, FIRST_CHANCES)
    assert few.value().first < few.value(num_since=100).first - 0.2
    assert few.value(num_since=100).first > 0.75
    assert many.value(num_since=100).first < 0.1


def test_what_was_tried_long_ago_counts_less_than_what_is_tried_now():
    near, far = SequenceChance(FIRST_CHANCES), SequenceChance(FIRST_CHANCES)
    for one in (near, far):
        for _ in range(20):
            one.note(2, 0, FIRST_CHANCES)
    near.note(2, 2, FIRST_CHANCES, num_since=1)
    far.note(2, 2, FIRST_CHANCES, num_since=200)
    assert far.value().first > near.value().first + 0.1
