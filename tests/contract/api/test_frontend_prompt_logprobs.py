"""Log-probabilities of prompts over lossy links: complete, in order, before anything else."""

import asyncio

import grpc.aio
import pytest
from contract.frontend_clients import completion
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import WAIT_SECONDS, attached_frontend, ids_of
from contract.scored_answers import prompt_scores, score_prompt, score_tokens, score_whole_prompt

from pagewire_frontend.session.journal import MAX_GAPS
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import InternalError
from pagewire_shared.kv.arrays import pack_f32, pack_u32, unpack_u32
from pagewire_shared.rpc.errors import to_detail


async def read(call):
    """Return the kinds of all events, the scores of the prompt, and the text."""
    kinds, scores, text = [], [], ""
    async for response in call:
        kind = response.WhichOneof("event")
        kinds.append(kind)
        if kind == "prompt_logprobs":
            assert response.prompt_logprobs.first_position == len(scores) + 1
            scores += response.prompt_logprobs.logprobs
        elif kind in ("delta", "finished"):
            text += getattr(response, kind).text
    return kinds, scores, text


def asked(frontend, text="hello", **fields):
    return asyncio.create_task(
        read(frontend.stub.Complete(completion(text, prompt_logprobs=1, **fields)))
    )


def check(result, text="yes", num_prompt=5):
    kinds, scores, said = result
    assert [item.rank for item in scores] == list(range(1, num_prompt))
    assert [item.token_id for item in scores] == ids_of("hello")[1:]
    assert [item.logprob for item in scores] == [-float(p) for p in range(1, num_prompt)]
    assert said == text
    assert "prompt_logprobs" not in kinds[kinds.index("delta") :]


async def done(task):
    return await asyncio.wait_for(task, WAIT_SECONDS)


async def test_pieces_and_duplicates_come_out_once_and_first(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        task = asked(frontend, n=2)
        submit = await attach.next("submit")
        scores = prompt_scores(submit)
        score_prompt(attach, submit, 1, scores[:2])
        score_prompt(attach, submit, 1, scores[:2])
        score_prompt(attach, submit, 2, scores[1:])
        score_prompt(attach, submit, 1, scores)
        attach.answer(submit, 0, "yes")
        attach.answer(submit, 1, "")
        check(await done(task))


async def test_a_gap_in_the_prompt_is_not_waited_for(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        task = asked(frontend)
        submit = await attach.next("submit")
        scores = prompt_scores(submit)
        score_prompt(attach, submit, 1, scores[:1])
        score_prompt(attach, submit, 3, scores[2:])
        again = await attach.next("submit")
        assert (again.epoch, again.sampling.prompt_logprobs) == (1, 1)
        score_prompt(attach, again, 1, [(-9.0, 9, [])] * 4, epoch=0)
        score_prompt(attach, again, 1, scores)
        attach.say(again, "yes")
        check(await done(task))


async def test_tokens_before_the_prompt_are_a_gap(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        task = asked(frontend)
        submit = await attach.next("submit")
        score_prompt(attach, submit, 1, prompt_scores(submit)[:-1])
        attach.tokens(submit, 0, ids_of("y"))
        again = await attach.next("submit")
        assert again.emitted[0].token_ids == b""
        assert again.sampling.HasField("prompt_logprobs")
        score_whole_prompt(attach, again)
        attach.say(again, "yes")
        check(await done(task))


async def test_who_never_sends_what_is_asked_is_not_asked_for_ever(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        task = asked(frontend)
        for epoch in range(MAX_GAPS + 1):
            submit = await attach.next("submit")
            assert submit.epoch == epoch
            attach.tokens(submit, 0, ids_of("y"))
        await attach.next("abort")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await done(task)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "log-probabilities of the prompt" in str(caught.value.details())


async def test_an_end_before_the_prompt_is_a_gap(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        task = asked(frontend)
        submit = await attach.next("submit")
        attach.finish(submit, 0)
        again = await attach.next("submit")
        score_whole_prompt(attach, again)
        attach.say(again, "yes")
        check(await done(task))


async def test_what_is_complete_is_not_asked_again_after_a_loss(checkpoint):
    async with attached_frontend(checkpoint, is_resuming=False) as (frontend, attach):
        task = asked(frontend)
        submit = await attach.next("submit")
        score_whole_prompt(attach, submit)
        attach.tokens(submit, 0, ids_of("y"))
        attach.tokens(submit, 2, ids_of("s"))
        again = await attach.next("submit")
        assert not again.sampling.HasField("prompt_logprobs")
        assert unpack_u32(again.emitted[0].token_ids) == ids_of("y")
        attach.end()
        attach = await attach.next_attach()
        third = await attach.next("submit")
        assert not third.sampling.HasField("prompt_logprobs")
        attach.say(third, "yes")
        check(await done(task))


async def test_a_resumed_stream_takes_what_is_sent_again(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        task = asked(frontend)
        submit = await attach.next("submit")
        scores = prompt_scores(submit)
        score_prompt(attach, submit, 1, scores[:2])
        attach.end()
        attach = await attach.next_attach()
        [held] = attach.hello.held
        resent = wire.Submit(handle=held.handle, epoch=0)
        score_prompt(attach, resent, 1, scores)
        attach.tokens(resent, 0, ids_of("yes"))
        attach.finish(resent, 3)
        check(await done(task))


async def test_a_failure_before_the_prompt_is_complete_is_a_plain_status(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": "hello", "prompt_logprobs": 1, "stream": True}
        call = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        score_prompt(attach, submit, 1, prompt_scores(submit)[:2])
        detail = to_detail(InternalError("the step failed"))
        attach.finish(submit, 0, reason=4, error=detail)
        response = await call
    assert response.status_code == 500
    assert response.json()["error"]["message"] == "the step failed"


async def test_ranks_of_tokens_travel_and_may_be_missing(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        for ranks, expected in (([3, 1], [3, 1]), ([], [0, 0])):
            call = frontend.stub.Complete(completion(logprobs=0))
            submit = await attach.next("submit")
            if ranks:
                scores = [(-0.5, rank, []) for rank in ranks]
                score_tokens(attach, submit, ids_of("ab"), scores)
            else:
                attach.tokens(submit, 0, ids_of("ab"), logprobs=[-0.5, -0.5])
            attach.finish(submit, 2)
            found = [
                item.rank
                async for response in call
                if response.WhichOneof("event") == "delta"
                for item in response.delta.logprobs
            ]
            assert found == expected


async def test_a_torn_batch_ends_the_stream_and_not_the_request(checkpoint):
    async with attached_frontend(checkpoint, is_resuming=False) as (frontend, attach):
        task = asked(frontend)
        for broken in (
            {"counts": pack_u32([3])},
            {"first_positions": pack_u32([0])},
            {"first_positions": pack_u32([5])},
            {"ranks": b""},
            {"num_top": pack_u32([1])},
            {"num_top": pack_u32([2, 0])},
        ):
            submit = await attach.next("submit")
            arrays = {
                "handles": pack_u32([submit.handle]),
                "epochs": pack_u32([submit.epoch]),
                "first_positions": pack_u32([1]),
                "counts": pack_u32([2]),
                "logprobs": pack_f32([-1.0, -2.0]),
                "ranks": pack_u32([1, 2]),
                **broken,
            }
            attach.send(prompt_logprobs=wire.PromptLogprobBatch(**arrays))
            attach = await attach.next_attach()
        submit = await attach.next("submit")
        score_whole_prompt(attach, submit)
        attach.say(submit, "yes")
        check(await done(task))
