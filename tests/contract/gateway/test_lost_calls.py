"""Kept calls over gRPC whose frontend is gone: another makes them again from a recipe."""

import asyncio
import random

import pytest
from contract.frontend_clients import completion
from contract.frontend_groups import frontend_group
from contract.frontend_peers import ids_of
from contract.gateway.test_kept_calls import CONTINUE, KEY, forms, messages, resumed
from contract.gateway.test_lost_makers import refuse
from contract.scored_answers import prompt_scores, score_prompt

from pagewire import AsyncClient
from pagewire.client.events import Closed, Delta
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from support.processes.processes import free_port

TEXT = "one \N{SNOWMAN} two \N{GRINNING FACE} three"


async def begun(member, metadata=CONTINUE, request=None, text=TEXT[:6]):
    """Return the first messages of a stream, its submit, and its call."""
    call = member.frontend.stub.Complete(request or completion(), metadata=metadata)
    reading = asyncio.create_task(call.read())
    submit = await member.attach.next("submit")
    member.attach.tokens(submit, 0, ids_of(text), num_cached=16)
    first = [await reading]
    first += [await call.read() for _ in ids_of(text)]
    return first, submit, call


def texts_of(answer):
    text = {}
    for message in answer:
        event = message.WhichOneof("event")
        part = getattr(message, event)
        if event in ("delta", "finished"):
            text[part.choice] = text.get(part.choice, "") + part.text
    return text


@pytest.mark.parametrize("is_held", [True, False])
async def test_it_goes_on_with_the_messages_that_are_missing(checkpoint, tmp_path, is_held):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        first, submit, call = await begun(a)
        stream_id = first[0].opened.stream_id
        call.cancel()
        await a.stop()
        reading = asyncio.create_task(resumed(b.frontend.stub, stream_id, len(first)))
        again = await b.attach.next("submit")
        assert (again.must_be_held, again.request_id) == (True, submit.request_id)
        assert again.sampling == submit.sampling
        if not is_held:
            refuse(b.attach, again, "must_be_held")
            again = await b.attach.next("submit")
            assert again.request_id != submit.request_id
        b.attach.say(again, TEXT)
        rest = await reading
        whole = await resumed(b.frontend.stub, stream_id)
        assert forms(whole) == forms(first) + forms(rest)
        assert texts_of(whole) == {0: TEXT}
        assert whole[0].opened.request_id == submit.request_id.hex()
        assert whole[-1].closed.usage.cached_tokens == 16


async def test_it_is_refused_where_other_tokens_might_come(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, is_exact=False) as (a, b):
        first, _, call = await begun(a)
        call.cancel()
        await a.stop()
        reading = asyncio.create_task(resumed(b.frontend.stub, first[0].opened.stream_id, 1))
        refuse(b.attach, await b.attach.next("submit"), "must_be_held")
        with pytest.raises(Exception, match="may compute others"):
            await reading


async def test_messages_do_not_depend_on_how_tokens_came(checkpoint, tmp_path):
    request = completion(n=2, stop=["thr"], logprobs=1, prompt_logprobs=1)
    ids, found = ids_of(TEXT.split("thr")[0] + "thr"), []
    async with frontend_group(checkpoint, tmp_path) as (a, _):
        for seed in range(6):
            draw = random.Random(seed)
            call = a.frontend.stub.Complete(request, metadata=CONTINUE)
            reading = asyncio.create_task(messages(call))
            submit = await a.attach.next("submit")
            scores, num_scored, positions = prompt_scores(submit), 0, [0, 0]
            while num_scored < len(scores):
                some = scores[num_scored : num_scored + draw.randint(1, 4)]
                score_prompt(a.attach, submit, 1 + num_scored, some)
                num_scored += len(some)
            while min(positions) < len(ids):
                choice = draw.choice([one for one in (0, 1) if positions[one] < len(ids)])
                first = positions[choice]
                part = ids[first : first + draw.randint(1, 7)]
                a.attach.tokens(submit, first, part, choice=choice, logprobs=[-0.5] * len(part))
                positions[choice] += len(part)
                await asyncio.sleep(draw.choice([0, 0.002]))
            answer = await reading
            assert [answer[0].HasField("opened"), answer[-1].HasField("closed")] == [True, True]
            found.append(forms(answer[1:-1]))
            await asyncio.sleep(0.05)
            assert set(a.attach.unread()) <= {"abort"}
    assert all(one == found[0] for one in found)
    assert texts_of(answer) == dict.fromkeys((0, 1), TEXT.split("thr")[0])


async def test_the_answer_of_a_key_outlives_its_frontend(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        call = a.frontend.stub.Complete(completion(), metadata=KEY)
        reading = asyncio.create_task(messages(call))
        a.attach.say(await a.attach.next("submit"), TEXT)
        first = await reading
        await a.stop()
        again = asyncio.create_task(messages(b.frontend.stub.Complete(completion(), metadata=KEY)))
        submit = await b.attach.next("submit")
        refuse(b.attach, submit, "must_be_held")
        b.attach.say(await b.attach.next("submit"), TEXT)
        # The time that it took is told as it was the first time.
        assert forms(await again) == forms(first)


async def test_a_client_reads_on_by_itself(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        client = AsyncClient(a.frontend.address, resume_seconds=20)
        # As a load balancer would have it.
        client._stub.Resume = b.frontend.stub.Resume
        seen = []

        async def read():
            async for event in client.complete("hello", {"max_tokens": 64}):
                seen.append(event)

        reading = asyncio.create_task(read())
        submit = await a.attach.next("submit")
        a.attach.tokens(submit, 0, ids_of(TEXT[:6]))
        while len(seen) < 4:
            assert not reading.done(), reading.exception()
            await asyncio.sleep(0.01)
        await a.stop()
        assert not reading.done(), reading.exception()
        b.attach.say(await b.attach.next("submit"), TEXT)
        await reading
        await client.close()
    assert "".join(one.text for one in seen if isinstance(one, Delta)) == TEXT
    assert isinstance(seen[-1], Closed)
    assert sum(isinstance(one, Closed) for one in seen) == 1


async def test_a_client_gives_up_after_its_patience():
    async with AsyncClient(f"127.0.0.1:{free_port()}", resume_seconds=0.2) as client:
        with pytest.raises(Exception, match="does not answer"):
            [event async for event in client.complete("hello", {"max_tokens": 4})]


async def test_what_is_refused_is_not_tried_again(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, _):
        client = AsyncClient(a.frontend.address, resume_seconds=20)
        with pytest.raises(Exception, match="max_tokens"):
            [event async for event in client.complete("hello", {"max_tokens": 10**6})]
        await client.close()


async def test_a_client_that_leaves_early_ends_its_stream(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, _):
        client = AsyncClient(a.frontend.address, resume_seconds=20)
        events = client.complete("hello", {"max_tokens": 64})
        reading = asyncio.create_task(anext(events))
        submit = await a.attach.next("submit")
        a.attach.tokens(submit, 0, ids_of("yes"))
        opened = await reading
        assert [type(one) for one in (await anext(events),)] == [Delta]
        await events.aclose()
        assert (await a.attach.next("abort")).handle == submit.handle
        with pytest.raises(Exception, match="is gone"):
            await resumed(a.frontend.stub, opened.stream_id)
        await client.close()


async def test_a_client_that_leaves_before_the_first_message_ends_its_stream(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, _):
        client = AsyncClient(a.frontend.address, resume_seconds=20)
        reading = asyncio.create_task(anext(client.complete("hello", {"max_tokens": 64})))
        submit = await a.attach.next("submit")
        await asyncio.sleep(0.2)  # until the name of the stream is here
        reading.cancel()
        assert (await a.attach.next("abort")).handle == submit.handle
        await client.close()


async def test_a_stream_is_ended_at_any_frontend_with_its_recipes(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        first, submit, call = await begun(a)
        call.cancel()
        request = pb.CancelStreamRequest(stream_id=first[0].opened.stream_id)
        await b.frontend.stub.CancelStream(request)
        assert (await a.attach.next("abort")).handle == submit.handle
        await a.stop()
        # Nor is it made again.
        for again in (
            b.frontend.stub.CancelStream(request),
            resumed(b.frontend.stub, request.stream_id),
        ):
            with pytest.raises(Exception, match=r"gone|does not answer"):
                await again
        assert not b.attach.unread()
