"""The journal: what it takes, what it drops, and what it never waits for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_frontend.session.journal import (
    ENDED,
    LEGAL_MOVES,
    ChoiceJournal,
    EntryState,
    Journal,
    JournalEntry,
    JournalMoveError,
    ReceiveOutcome,
    TokenLogprob,
)
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams


def entry(n: int = 1, **fields) -> JournalEntry:
    return JournalEntry(
        request_id=RequestId(b"r" * 16),
        model="m",
        prompt_token_ids=[1, 2, 3],
        params=SamplingParams(n=n, seed=1, max_tokens=100),
        **fields,
    )


def submitted(n: int = 1) -> JournalEntry:
    made = entry(n)
    made.submit(1)
    return made


@pytest.mark.parametrize(
    ("epoch", "first", "ids", "verdict", "taken"),
    [
        (0, 2, [30, 31], ReceiveOutcome.ACCEPTED, (30, 31)),
        (0, 2, [], ReceiveOutcome.DUPLICATE, ()),
        (0, 0, [10, 20], ReceiveOutcome.DUPLICATE, ()),
        (0, 0, [10], ReceiveOutcome.DUPLICATE, ()),
        (0, 1, [20, 30, 31], ReceiveOutcome.ACCEPTED, (30, 31)),
        (0, 3, [40], ReceiveOutcome.GAP, ()),
        (1, 2, [30], ReceiveOutcome.GAP, ()),
    ],
)
def test_exactly_the_next_position_is_taken(epoch, first, ids, verdict, taken):
    held = submitted()
    held.accept_tokens(0, 0, 0, [10, 20])
    got, num_known = held.accept_tokens(epoch, 0, first, ids)
    assert (got, tuple(ids[num_known:]) if taken else ()) == (verdict, taken)
    assert held.choices[0].token_ids == [10, 20, *taken]


def test_an_older_epoch_is_dropped_even_where_it_would_fit():
    held = submitted()
    held.submit(2)
    assert held.accept_tokens(0, 0, 0, [1])[0] is ReceiveOutcome.DUPLICATE
    assert held.accept_tokens(0, 0, 5, [1])[0] is ReceiveOutcome.DUPLICATE
    assert held.finish(0, 0, 0) is ReceiveOutcome.DUPLICATE
    assert held.accept_tokens(1, 0, 0, [1])[0] is ReceiveOutcome.ACCEPTED


def test_logprobs_stay_with_their_tokens():
    held = submitted()
    logprobs = [TokenLogprob(i, -float(i)) for i in range(3)]
    held.accept_tokens(0, 0, 0, [0, 1], logprobs[:2])
    assert held.accept_tokens(0, 0, 1, [1, 2], logprobs[1:]) == (ReceiveOutcome.ACCEPTED, 1)
    assert held.choices[0].logprobs == logprobs


@pytest.mark.parametrize(
    ("num_tokens", "verdict"),
    [(2, ReceiveOutcome.ACCEPTED), (1, ReceiveOutcome.GAP), (3, ReceiveOutcome.GAP)],
)
def test_an_end_must_agree_with_what_is_held(num_tokens, verdict):
    held = submitted()
    held.accept_tokens(0, 0, 0, [1, 2])
    assert held.finish(0, 0, num_tokens) is verdict
    assert held.is_finished is (verdict is ReceiveOutcome.ACCEPTED)


def test_after_the_end_nothing_is_taken():
    held = submitted(2)
    held.accept_tokens(0, 0, 0, [1])
    held.finish(0, 0, 1)
    assert held.accept_tokens(0, 0, 1, [2])[0] is ReceiveOutcome.DUPLICATE
    assert held.finish(0, 0, 1) is ReceiveOutcome.DUPLICATE
    assert not held.is_finished
    assert held.accept_tokens(0, 2, 0, [2])[0] is ReceiveOutcome.GAP


def test_a_cut_forgets_what_came_after_the_match():
    held = submitted()
    held.accept_tokens(0, 0, 0, [1, 2, 3], [TokenLogprob(i, 0.0) for i in (1, 2, 3)])
    held.cut(0, 2)
    assert held.choices[0].token_ids == [1, 2]
    assert len(held.choices[0].logprobs) == 2
    assert held.is_finished


def test_a_resume_record_carries_everything_emitted():
    held = submitted(2)
    held.accept_tokens(0, 0, 0, [7, 8])
    held.accept_tokens(0, 1, 0, [9])
    held.finish(0, 1, 1)
    held.detach()
    assert held.held(5).next_positions == (2, ENDED)
    record = held.submit(6)
    assert (record.epoch, record.handle) == (1, 6)
    assert record.emitted == (((7, 8), False), ((9,), True))
    assert record.prompt_token_ids == [1, 2, 3]
    assert held.num_resubmits == 1


def test_reattaching_keeps_the_epoch():
    held = submitted()
    held.detach()
    assert held.accept_tokens(0, 0, 0, [1])[0] is ReceiveOutcome.DUPLICATE
    held.reattach(9)
    assert (held.epoch, held.handle, held.num_resubmits) == (0, 9, 0)
    assert held.accept_tokens(0, 0, 0, [1])[0] is ReceiveOutcome.ACCEPTED


def beams(n: int = 2) -> JournalEntry:
    held = entry()
    held.params = SamplingParams(n=n, seed=1, max_tokens=100, use_beam_search=True)
    held.choices = [ChoiceJournal() for _ in range(n)]
    held.submit(1)
    return held


def test_two_searches_are_never_mixed():
    held = beams()
    held.accept_tokens(0, 0, 0, [7, 8])
    held.finish(0, 0, 2)
    held.accept_tokens(0, 1, 0, [9])
    record = held.submit(2)
    assert record.emitted == (((), False), ((), False))
    # The rest of the first search comes late: none of it is taken.
    assert held.accept_tokens(0, 1, 1, [10])[0] is ReceiveOutcome.DUPLICATE
    assert held.finish(0, 1, 2) is ReceiveOutcome.DUPLICATE
    assert held.accept_tokens(1, 0, 0, [5])[0] is ReceiveOutcome.ACCEPTED
    assert held.accept_tokens(1, 1, 0, [6, 6])[0] is ReceiveOutcome.ACCEPTED
    assert [held.finish(1, 0, 1), held.finish(1, 1, 2)] == [ReceiveOutcome.ACCEPTED] * 2
    assert [choice.token_ids for choice in held.choices] == [[5], [6, 6]]
    assert held.is_finished


def test_the_same_search_goes_on_where_it_was():
    held = beams()
    held.accept_tokens(0, 0, 0, [7, 8])
    held.finish(0, 0, 2)
    held.accept_tokens(0, 1, 0, [9])
    held.detach()
    assert held.held(3).next_positions == (ENDED, 1)
    held.reattach(3)
    assert held.accept_tokens(0, 1, 0, [9, 10]) == (ReceiveOutcome.ACCEPTED, 1)
    held.finish(0, 1, 2)
    assert [choice.token_ids for choice in held.choices] == [[7, 8], [9, 10]]


MOVES = {
    EntryState.SUBMITTED: lambda e: e.submit(2),
    EntryState.DETACHED: lambda e: e.detach(),
    EntryState.WAITING: lambda e: e.release(),
    EntryState.CLOSED: lambda e: e.close(),
}


@pytest.mark.parametrize("state", list(EntryState))
@pytest.mark.parametrize("target", list(EntryState))
def test_only_legal_moves_are_made(state, target):
    held = entry(state=state)
    if target in LEGAL_MOVES[state]:
        MOVES[target](held)
        assert held.state is target
    else:
        with pytest.raises(JournalMoveError):
            MOVES[target](held)
        assert held.state is state


def test_the_journal_forgets_closed_entries():
    journal, held = Journal(), entry()
    journal.open(held)
    assert list(journal) == [held]
    journal.close(held)
    assert len(journal) == 0
    assert held.state is EntryState.CLOSED


TRUTH = list(range(1000, 1030))
MESSAGES = st.tuples(
    st.integers(0, 29), st.integers(0, 6), st.integers(-1, 1), st.sampled_from(["tokens", "end"])
)


@given(st.lists(MESSAGES, max_size=60))
def test_whatever_arrives_the_journal_is_a_prefix_of_the_truth(messages):
    """A lossy link that repeats, reorders and loses; the caller submits again after each gap."""
    held = submitted()
    for first, count, age, kind in messages:
        if held.is_finished:
            break
        before = len(held.choices[0].token_ids)
        epoch = held.epoch + age
        # An older epoch speaks of other tokens: nothing of it may show.
        source = TRUTH if age == 0 else [-1] * 30
        if kind == "tokens":
            verdict, _ = held.accept_tokens(epoch, 0, first, source[first : first + count])
            assert (verdict is ReceiveOutcome.ACCEPTED) == (
                age == 0 and first <= before < min(first + count, 30)
            )
        else:
            verdict = held.finish(epoch, 0, 30 if age == 0 else first)
        if verdict is ReceiveOutcome.GAP:
            record = held.submit(held.epoch + 10)
            assert record.emitted[0][0] == tuple(TRUTH[:before])
        ids = held.choices[0].token_ids
        assert ids == TRUTH[: len(ids)]
        assert len(ids) >= before
    if held.is_finished:
        assert held.choices[0].token_ids == TRUTH
