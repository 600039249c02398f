"""Answers over gRPC whose text comes when a choice ends: the same as streamed, in few messages."""

import asyncio

import pytest
from contract.frontend_clients import completion
from contract.frontend_peers import attached_frontend, ids_of

from pagewire_frontend.grpc_api import answers
from pagewire_frontend.grpc_api.answers import FinalDeltas
from pagewire_frontend.session.events import Closed, Delta, Finished, FinishReason, Timings, Usage

TEXT = "upon a time there was"


async def answered(checkpoint, *, final_only):
    """A reader of two choices whose tokens come one by one, and how many deltas it got."""
    request = completion("once", n=2)
    request.options.final_only = final_only
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = frontend.stub.Complete(request)
        counting = asyncio.create_task(counted(call))
        submit = await attach.next("submit")
        ids = ids_of(TEXT)
        for position, token_id in enumerate(ids):
            for choice in (0, 1):
                attach.tokens(submit, position, [token_id], choice=choice)
                await asyncio.sleep(0.002)
        for choice in (0, 1):
            attach.finish(submit, len(ids), choice=choice)
        num_deltas, texts = await counting
    return num_deltas, texts


async def counted(call):
    num_deltas, texts = 0, {}
    async for response in call:
        if response.HasField("delta"):
            num_deltas += 1
            choice = response.delta.choice
            texts[choice] = texts.get(choice, "") + response.delta.text
        elif response.HasField("finished"):
            texts[response.finished.choice] += response.finished.text
    return num_deltas, texts


async def test_the_answer_is_the_same_in_two_messages(checkpoint):
    num_deltas, texts = await answered(checkpoint, final_only=True)
    assert (num_deltas, texts) == (2, {0: TEXT, 1: TEXT})
    num_streamed, streamed = await answered(checkpoint, final_only=False)
    assert streamed == texts
    assert num_streamed > 2


def delta(choice, position, count=1, *, logprobs=0):
    return Delta(choice, position, [*range(count)], "x" * count, [None] * logprobs)


def test_each_choice_is_one_delta_before_its_end():
    final = FinalDeltas()
    ends = [Finished(choice, FinishReason.LENGTH) for choice in (0, 1)]
    shown = []
    for event in (delta(0, 0), delta(1, 0, 2), delta(0, 1, 3), ends[1], delta(0, 4), ends[0]):
        shown += final.take(event)
    first, second = Delta(1, 0, [0, 1], "xx"), Delta(0, 0, [0, 0, 1, 2, 0], "xxxxx")
    assert shown == [first, ends[1], second, ends[0]]
    closed = Closed(Usage(1, 1, 0), Timings(0.0, 0.0, 0))
    assert final.take(closed) == [closed]


def test_a_choice_without_tokens_has_no_delta():
    end = Finished(0, FinishReason.ABORTED)
    assert FinalDeltas().take(end) == [end]


@pytest.mark.parametrize("what", ["MAX_TOKENS", "MAX_LOGPROBS"])
def test_a_delta_is_bounded(what, monkeypatch):
    monkeypatch.setattr(answers, what, 4)
    final, end = FinalDeltas(), Finished(0, FinishReason.LENGTH)
    shown = []
    for position in range(0, 9, 3):
        shown += final.take(delta(0, position, 3, logprobs=3))
    shown += final.take(end)
    assert [one.first_position for one in shown[:-1]] == [0, 3, 6]
    assert shown[-1] == end
