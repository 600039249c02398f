"""Which choices a reader is given: the best of several, and beams as they are."""

import math

import pytest

from pagewire_frontend.session.events import Delta, Finished, FinishReason
from pagewire_frontend.session.journal_records import ChoiceJournal, TokenLogprob
from pagewire_frontend.session.selection import best_first, computed
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams


def choice(*logprobs: float) -> ChoiceJournal:
    entries = [TokenLogprob(7, value) for value in logprobs]
    return ChoiceJournal([7] * len(logprobs), entries, is_finished=True)


@pytest.mark.parametrize(
    ("choices", "order"),
    [
        ([choice(-2.0), choice(-1.0), choice(-3.0)], [1, 0, 2]),
        # By the sum the first would win: three tokens at -0.5 are better per token.
        ([choice(-1.0), choice(-0.5, -0.5, -0.5)], [1, 0]),
        ([choice(-1.0), choice(-1.0, -1.0), choice(-1.0)], [0, 1, 2]),
        ([choice(), choice(-9.0), choice(math.nan), choice(-math.inf)], [1, 0, 2, 3]),
    ],
)
def test_the_best_have_the_highest_logprob_per_token(choices, order):
    assert best_first(choices) == order


def test_a_choice_without_all_its_logprobs_comes_last():
    torn = ChoiceJournal([1, 2], [TokenLogprob(1, 0.0)], is_finished=True)
    assert best_first([torn, choice(-50.0)]) == [1, 0]


def test_plain_requests_are_not_held_back():
    for params in (SamplingParams(n=3, seed=1), SamplingParams(n=3, best_of=3, seed=1)):
        asked, selection = computed(params)
        assert (asked.n, asked.best_of, asked.logprobs, selection) == (3, None, None, None)


@pytest.mark.parametrize(("given", "sent"), [(None, 0), (0, 0), (5, 5)])
def test_best_of_computes_more_and_asks_for_logprobs(given, sent):
    asked, selection = computed(SamplingParams(n=2, best_of=5, logprobs=given))
    assert (asked.n, asked.best_of, asked.logprobs) == (5, None, sent)
    assert (selection.num_shown, selection.has_logprobs) == (2, given is not None)
    # A second look changes nothing.
    assert computed(asked) == (asked, None)


@pytest.mark.parametrize("has_logprobs", [False, True])
def test_what_is_shown_is_numbered_anew(has_logprobs):
    choices = [choice(-3.0), choice(-1.0), choice(-2.0)]
    deltas = {i: Delta(i, 0, [7], f"t{i}", list(c.logprobs)) for i, c in enumerate(choices)}
    ends = [Finished(i, FinishReason.STOP, f"e{i}") for i in (2, 0, 1)]
    params = SamplingParams(n=2, best_of=3, logprobs=0 if has_logprobs else None)
    _, selection = computed(params)
    events = list(selection.events(choices, deltas, ends))
    assert [(type(e).__name__, e.choice, e.text) for e in events] == [
        ("Delta", 0, "t1"),
        ("Finished", 0, "e1"),
        ("Delta", 1, "t2"),
        ("Finished", 1, "e2"),
    ]
    assert [len(e.logprobs) for e in events if isinstance(e, Delta)] == [int(has_logprobs)] * 2


def test_beams_keep_their_order():
    params = SamplingParams(n=2, use_beam_search=True)
    asked, selection = computed(params)
    assert asked == params
    choices = [choice(), choice()]
    ends = [Finished(i, FinishReason.STOP) for i in (1, 0)]
    assert [event.choice for event in selection.events(choices, {}, ends)] == [0, 1]


def test_logprobs_of_beams_are_refused_by_name():
    with pytest.raises(InvalidRequestError) as caught:
        computed(SamplingParams(n=2, use_beam_search=True, logprobs=0))
    assert caught.value.field == "logprobs"
