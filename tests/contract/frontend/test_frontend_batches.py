"""Calls of many requests: whole answers in few messages, each request alone in its fate."""

import asyncio

import grpc
import grpc.aio
import pytest
from contract import frontend_peers
from contract.frontend_clients import Reader, completion
from contract.frontend_peers import attached_frontend, ids_of

from pagewire.client.batch_answers import batch_parts, batch_request
from pagewire_frontend.grpc_api import batch_call, batch_convert, batch_service
from pagewire_protos.frontend.v1 import batch_pb2, batch_pb2_grpc
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.kv.arrays import unpack_u32

TEXT = "upon a time there was"


def called(frontend, requests, **options):
    stub = batch_pb2_grpc.BatchServiceStub(frontend.channel)
    return stub.GenerateBatch(batch_request(requests), **options)


async def collected(call):
    """Return events and errors by request, and the number of messages."""
    events, errors, num_messages = {}, {}, 0
    async for message in call:
        num_messages += 1
        for part in batch_parts(message):
            events.setdefault(part.index, []).extend(part.events)
            if part.error is not None:
                errors[part.index] = part.error
    return events, errors, num_messages


def text_of(events):
    return "".join(event.text for event in events if hasattr(event, "text"))


async def submits_of(attach, number):
    """Return the next submits by their prompt."""
    found = [await attach.next("submit") for _ in range(number)]
    return {tuple(unpack_u32(one.prompt_token_ids)): one for one in found}


async def test_an_answer_is_that_of_a_stream_and_comes_when_it_is_whole(checkpoint):
    requests = [completion("first", n=2), completion("other", n=2)]
    async with attached_frontend(checkpoint) as (frontend, attach):
        streamed = Reader(frontend, requests[0])
        submit = await attach.next("submit")
        for choice in (0, 1):
            attach.answer(submit, choice, TEXT)
        await streamed.end()

        collecting = asyncio.create_task(collected(called(frontend, requests)))
        submits = await submits_of(attach, 2)
        ids = ids_of(TEXT)
        for position, token_id in enumerate(ids):
            for choice in (0, 1):
                for submit in submits.values():
                    attach.tokens(submit, position, [token_id], choice=choice)
                await asyncio.sleep(0.001)
        for submit in submits.values():
            for choice in (0, 1):
                attach.finish(submit, len(ids), choice=choice)
        events, errors, num_messages = await collecting
    assert not errors
    assert num_messages <= 2
    for index in (0, 1):
        # One delta and one end of each choice.
        kinds = sorted(type(event).__name__ for event in events[index])
        assert kinds == ["Closed", "Delta", "Delta", "Finished", "Finished", "Opened"]
        assert text_of(events[index]) == TEXT * 2
    assert streamed.text == {0: TEXT, 1: TEXT}


async def test_a_bad_request_ends_alone(checkpoint):
    empty = batch_pb2.BatchItem()
    message = batch_request([completion("fine"), completion("bad", temperature=-1.0)])
    message.items.append(empty)
    message.items.add().complete.CopyFrom(completion("which", n=3))
    message.items[3].complete.model = "another"
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = batch_pb2_grpc.BatchServiceStub(frontend.channel).GenerateBatch(message)
        collecting = asyncio.create_task(collected(call))
        attach.say(await attach.next("submit"), TEXT)
        events, errors, _ = await collecting
    assert text_of(events[0]) == TEXT
    assert sorted(errors) == [1, 2, 3]
    assert [errors[index].field for index in (1, 3)] == ["temperature", "model"]
    assert errors[2].field == "prompt"


@pytest.mark.parametrize("number", [0, batch_call.MAX_ITEMS + 1])
async def test_the_number_of_requests_is_bounded(checkpoint, number):
    async with attached_frontend(checkpoint) as (frontend, _):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collected(called(frontend, [completion()] * number))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "items" in str(caught.value.details())


async def test_each_request_has_its_own_parameters(checkpoint):
    wanted = [7, 7, 9, 7, 8]
    requests = [completion(f"p{n}", max_tokens=most) for n, most in enumerate(wanted)]
    requests.append(completion("q", temperature=0.5))
    async with attached_frontend(checkpoint) as (frontend, attach):
        collecting = asyncio.create_task(collected(called(frontend, requests)))
        submits = await submits_of(attach, len(requests))
        for submit in submits.values():
            attach.say(submit, TEXT)
        await collecting
    found = {prompt: submit.sampling for prompt, submit in submits.items()}
    for number, most in enumerate(wanted):
        assert found[tuple(ids_of(f"p{number}"))].max_tokens == most
    assert found[tuple(ids_of("q"))].temperature == 0.5


async def test_the_bytes_of_several_requests_are_bounded(checkpoint, monkeypatch):
    monkeypatch.setattr(batch_service, "MAX_BYTES", 200)
    long, short = completion("a" * 190), completion("b" * 60)
    async with attached_frontend(checkpoint) as (frontend, attach):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await collected(called(frontend, [short, long]))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "it takes 200" in str(caught.value.details())
        # One request may be as large as any message; two that fit are taken.
        for requests in ([completion("c" * 220)], [short, short]):
            collecting = asyncio.create_task(collected(called(frontend, requests)))
            for _ in requests:
                attach.say(await attach.next("submit"), TEXT)
            events, errors, _ = await collecting
            assert not errors
            assert len(events) == len(requests)


async def test_a_client_that_leaves_frees_every_request(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = called(frontend, [completion(f"one {number}") for number in range(5)])
        reading = asyncio.create_task(collected(call))
        handles = {one.handle for one in (await submits_of(attach, 5)).values()}
        call.cancel()
        aborted = {(await attach.next("abort")).handle for _ in range(5)}
        assert aborted == handles
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_a_deadline_frees_every_request(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = called(frontend, [completion("a"), completion("b")], timeout=0.5)
        reading = asyncio.create_task(collected(call))
        handles = {one.handle for one in (await submits_of(attach, 2)).values()}
        # The client's own clock may be first: then the call ends, and not each request.
        await asyncio.gather(reading, return_exceptions=True)
        assert {(await attach.next("abort")).handle for _ in range(2)} == handles


async def test_a_conversation_comes_with_the_text_of_its_prompt(checkpoint):
    turn = pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="hi")
    request = pb.ChatRequest(messages=[turn])
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = called(frontend, [request])
        reading = asyncio.create_task(anext(aiter(call)))
        submit = await attach.next("submit")
        attach.say(submit, TEXT)
        [answer] = (await reading).answers
        ids = unpack_u32(submit.prompt_token_ids)
        text = await frontend.stub.Detokenize(pb.DetokenizeRequest(token_ids=ids))
        assert answer.prompt == text.text
        assert "hi" in answer.prompt


async def test_a_large_answer_comes_in_parts(checkpoint, monkeypatch):
    monkeypatch.setattr(batch_convert, "MESSAGE_BYTES", 64)
    monkeypatch.setattr(batch_convert, "MAX_TOKENS", 4)
    async with attached_frontend(checkpoint) as (frontend, attach):
        collecting = asyncio.create_task(collected(called(frontend, [completion()])))
        attach.say(await attach.next("submit"), TEXT)
        events, _, num_messages = await collecting
    assert num_messages > 2
    assert text_of(events[0]) == TEXT
    positions = [e.first_position for e in events[0] if hasattr(e, "first_position")]
    assert positions == [*range(0, len(ids_of(TEXT)), 4)]


async def test_requests_count_one_by_one_for_their_key(checkpoint, tmp_path):
    keys, secret = tmp_path / "keys", "sk-0123456789abcdef"
    keys.write_text(f"few={secret} requests-per-minute=2\n", encoding="utf-8")
    metadata = (("authorization", f"Bearer {secret}"),)
    async with attached_frontend(checkpoint, api_key_file=str(keys)) as (frontend, attach):
        call = called(frontend, [completion(f"p{n}") for n in range(4)], metadata=metadata)
        collecting = asyncio.create_task(collected(call))
        for submit in (await submits_of(attach, 2)).values():
            attach.say(submit, TEXT)
        events, errors, _ = await collecting
    assert len([one for one in events.values() if text_of(one)]) == 2
    assert {error.status_name for error in errors.values()} == {"RESOURCE_EXHAUSTED"}
    assert len(errors) == 2


async def test_a_scheduler_of_an_older_protocol_gets_single_submits(checkpoint, monkeypatch):
    monkeypatch.setattr(frontend_peers, "PROTOCOL_MAX", 2)
    kinds, single = [], frontend_peers._single

    def noting(message):
        kinds.append(message.WhichOneof("message"))
        return single(message)

    monkeypatch.setattr(frontend_peers, "_single", noting)
    async with attached_frontend(checkpoint) as (frontend, attach):
        collecting = asyncio.create_task(collected(called(frontend, [completion()] * 20)))
        for _ in range(20):
            attach.say(await attach.next("submit"), TEXT)
        await collecting
    assert kinds.count("submit") == 20
    assert "submits" not in kinds
