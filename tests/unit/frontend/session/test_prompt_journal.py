"""Log-probabilities of a prompt: each position once and in order, before anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_frontend.session.events import Closed, Delta, Finished, FinishReason, PromptLogprobs
from pagewire_frontend.session.journal import JournalEntry
from pagewire_frontend.session.journal_records import ReceiveOutcome, Score, TokenLogprob
from pagewire_frontend.session.output_buffer import POSITIONS_PER_EVENT, PromptOutputBuffer
from pagewire_frontend.session.session import Session
from pagewire_shared.errors import InternalError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from support.checkpoints.no_text import NoText

PROMPT = list(range(100, 110))
SCORES = [Score(-float(p), p, ((p, -0.5),)) for p in range(1, 10)]


def submitted(prompt=PROMPT, **params) -> JournalEntry:
    held = JournalEntry(
        request_id=RequestId(b"r" * 16),
        model="m",
        prompt_token_ids=prompt,
        params=SamplingParams(seed=1, max_tokens=9, **{"prompt_logprobs": 1, **params}),
    )
    held.submit(1)
    return held


def test_pieces_in_order_name_the_tokens_of_the_prompt():
    held = submitted()
    assert held.accept_prompt_logprobs(0, 1, SCORES[:3])[0] is ReceiveOutcome.ACCEPTED
    assert not held.is_prompt_complete
    verdict, new = held.accept_prompt_logprobs(0, 4, SCORES[3:])
    assert verdict is ReceiveOutcome.ACCEPTED
    assert held.is_prompt_complete
    assert new[0] == TokenLogprob(104, -4.0, ((4, -0.5),), 4)
    assert [item.token_id for item in new] == PROMPT[4:]


@pytest.mark.parametrize(
    ("epoch", "first", "scores", "verdict", "num_new"),
    [
        (0, 4, SCORES[3:5], ReceiveOutcome.ACCEPTED, 2),
        (0, 1, SCORES[:3], ReceiveOutcome.DUPLICATE, 0),
        (0, 2, SCORES[1:2], ReceiveOutcome.DUPLICATE, 0),
        (0, 2, SCORES[1:5], ReceiveOutcome.ACCEPTED, 2),
        (0, 5, SCORES[4:6], ReceiveOutcome.GAP, 0),
        (1, 4, SCORES[3:5], ReceiveOutcome.GAP, 0),
        (0, 4, [], ReceiveOutcome.DUPLICATE, 0),
    ],
)
def test_exactly_the_next_positions_are_taken(epoch, first, scores, verdict, num_new):
    held = submitted()
    held.accept_prompt_logprobs(0, 1, SCORES[:3])
    got, new = held.accept_prompt_logprobs(epoch, first, scores)
    assert (got, len(new)) == (verdict, num_new)
    assert [item.rank for item in new] == [4, 5][:num_new]


def test_an_older_epoch_is_dropped():
    held = submitted()
    held.submit(2)
    assert held.accept_prompt_logprobs(0, 1, SCORES)[0] is ReceiveOutcome.DUPLICATE
    assert held.accept_prompt_logprobs(1, 1, SCORES)[0] is ReceiveOutcome.ACCEPTED


def test_tokens_and_ends_before_the_prompt_is_known_are_a_gap():
    held = submitted()
    assert held.accept_tokens(0, 0, 0, [1])[0] is ReceiveOutcome.GAP
    assert held.finish(0, 0, 0) is ReceiveOutcome.GAP
    held.accept_prompt_logprobs(0, 1, SCORES[:-1])
    assert held.accept_tokens(0, 0, 0, [1])[0] is ReceiveOutcome.GAP
    held.accept_prompt_logprobs(0, 9, SCORES[-1:])
    assert held.accept_tokens(0, 0, 0, [1])[0] is ReceiveOutcome.ACCEPTED


def test_what_is_known_is_not_asked_again():
    held = submitted()
    held.accept_prompt_logprobs(0, 1, SCORES[:3])
    assert held.submit(2).params.prompt_logprobs == 1
    held.accept_prompt_logprobs(1, 1, SCORES)
    held.accept_tokens(1, 0, 0, [7])
    record = held.submit(3)
    assert record.params.prompt_logprobs is None
    assert record.emitted == (((7,), False),)
    # A scheduler that tells it all the same is not believed to be telling something new.
    assert held.accept_prompt_logprobs(2, 1, SCORES) == (ReceiveOutcome.DUPLICATE, [])


def test_nothing_predicts_a_prompt_of_one_token():
    held = submitted(prompt=[5])
    assert held.is_prompt_complete
    assert held.submit(2).params.prompt_logprobs is None
    assert held.accept_tokens(1, 0, 0, [1])[0] is ReceiveOutcome.ACCEPTED


def test_who_did_not_ask_gets_nothing():
    held = submitted(prompt_logprobs=None)
    assert held.accept_prompt_logprobs(0, 1, SCORES) == (ReceiveOutcome.DUPLICATE, [])
    assert held.is_prompt_complete


async def test_a_reader_gets_the_prompt_first():
    held = submitted(n=2)
    session = Session(held, NoText(), arrived_at=0.0, deadline=None)
    session.on_prompt_logprobs(0, 1, SCORES[:4])
    session.on_prompt_logprobs(0, 2, SCORES[1:])
    for choice in range(2):
        session.on_tokens(0, choice, 0, [7], [], 0, 0.0)
        session.on_finished(0, choice, 1, FinishReason.LENGTH, None, None)
    events = [event async for event in session.events()]
    assert [type(event) for event in events] == [
        PromptLogprobs,
        Delta,
        Delta,
        Finished,
        Finished,
        Closed,
    ]
    assert len(events[0].logprobs) == 9


async def test_half_a_prompt_is_not_shown_when_a_request_fails():
    session = Session(submitted(), NoText(), arrived_at=0.0, deadline=None)
    session.on_prompt_logprobs(0, 1, SCORES[:4])
    session.on_finished(0, 0, 0, FinishReason.FAILED, None, InternalError("broken"))
    with pytest.raises(InternalError):
        await session.wait_first()
    with pytest.raises(InternalError):
        await anext(session.events())


PIECES = st.tuples(st.integers(1, 9), st.integers(0, 6), st.integers(-1, 0), st.booleans())


@given(st.lists(PIECES, max_size=40))
def test_whatever_arrives_what_was_taken_is_a_prefix_of_the_truth(pieces):
    """A lossy link that repeats, reorders and loses; a gap is answered by submitting again."""
    held, taken = submitted(), []
    for first, count, age, is_token in pieces:
        if is_token:
            if not held.is_prompt_complete:
                assert held.accept_tokens(held.epoch, 0, 0, [1])[0] is ReceiveOutcome.GAP
            continue
        source = SCORES if age == 0 else [Score(9.0, 99)] * 9
        piece = source[first - 1 : first - 1 + count]
        verdict, new = held.accept_prompt_logprobs(held.epoch + age, first, piece)
        taken += new
        if verdict is ReceiveOutcome.GAP:
            held.submit(held.epoch + 10)
        assert [item.rank for item in taken] == list(range(1, len(taken) + 1))
        assert [item.token_id for item in taken] == PROMPT[1 : 1 + len(taken)]
    assert held.is_prompt_complete == (len(taken) == 9)


def test_long_prompts_are_cut_into_events():
    tray = PromptOutputBuffer()
    items = [TokenLogprob(i, -1.0) for i in range(POSITIONS_PER_EVENT + 2)]
    tray.put(items)
    first, second = tray.take()
    assert (first.first_position, len(first.logprobs)) == (1, POSITIONS_PER_EVENT)
    assert second == PromptLogprobs(1 + POSITIONS_PER_EVENT, tuple(items[-2:]))
    assert not tray.has_waiting
    tray.put(items[:1])
    assert tray.take() == [PromptLogprobs(3 + POSITIONS_PER_EVENT, tuple(items[:1]))]
