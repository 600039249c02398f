"""Embed over gRPC, and vectors over lossy links: each exactly once, none waited for in vain."""

import asyncio

import grpc.aio
import pytest
from contract.frontend_peers import (
    STOP,
    WAIT_SECONDS,
    ScriptedScheduler,
    attached_frontend,
    ids_of,
    listening,
    running_frontend,
    served,
)
from contract.vector_answers import SIZE, embed, prompt_of, send_vectors, submits, vector_of

from pagewire_protos.common.v1 import pooling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import InternalError, InvalidRequestError, OverloadedError
from pagewire_shared.kv.arrays import pack_f32, pack_u32, unpack_u32
from pagewire_shared.rpc.errors import from_rpc_error, to_detail

USER = pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="hi")
SPECIAL = [1, *ids_of("user\nhi"), 2, *ids_of("\n")]


def attached(checkpoint, **settings):
    return attached_frontend(checkpoint, embedding_size=SIZE, **settings)


def texts(*inputs):
    return [pb.EmbedInput(text=text) for text in inputs]


def ask(frontend, *inputs, timeout=None, **fields):
    request = pb.EmbedRequest(inputs=texts(*inputs), **fields)
    return asyncio.ensure_future(frontend.stub.Embed(request, timeout=timeout))


async def done(call):
    """Return the vectors, as tuples of float32."""
    response = await asyncio.wait_for(call, WAIT_SECONDS)
    return [list(embedding.values) for embedding in response.embeddings]


async def failure(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(call, WAIT_SECONDS)
    return caught.value


def vectors(*inputs):
    return [vector_of(ids_of(text)) for text in inputs]


async def test_every_field_of_the_call_counts(checkpoint):
    conversation = pb.Conversation(messages=[USER])
    opened = pb.Conversation(messages=[USER], add_generation_prompt=True)
    request = pb.EmbedRequest(
        model="tiny",
        inputs=[
            *texts("abc"),
            pb.EmbedInput(token_ids=pb.TokenIds(ids=[7, 8])),
            pb.EmbedInput(conversation=conversation),
            pb.EmbedInput(conversation=opened),
        ],
        pooling=pooling_pb2.Pooling(kind=pooling_pb2.POOLING_KIND_MEAN, is_normalized=False),
        dimensions=3,
        tenant="t",
        cache_salt="s",
        priority=-5,
    )
    async with attached(checkpoint) as (frontend, attach):
        call = frontend.stub.Embed(request)
        asked = await submits(attach, 4)
        for submit in asked:
            assert submit.pool.kind == pooling_pb2.POOLING_KIND_MEAN
            assert submit.pool.is_normalized is False
            assert (submit.tenant, submit.cache_salt, submit.priority) == ("t", b"s", -5)
        assert [prompt_of(submit) for submit in asked[:3]] == [[7, 8], ids_of("abc"), SPECIAL]
        assert prompt_of(asked[3]) == [*SPECIAL, 1, *ids_of("assistant\n")]
        for submit in asked:
            embed(attach, submit, num_cached=1)
        response = await call
    prompts = [prompt_of(asked[place]) for place in (1, 0, 2, 3)]
    found = [list(embedding.values) for embedding in response.embeddings]
    assert found == [vector_of(prompt)[:3] for prompt in prompts]
    assert response.model == "tiny"
    assert response.usage.prompt_tokens == sum(map(len, prompts))
    assert (response.usage.completion_tokens, response.usage.cached_tokens) == (0, 4)


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({}, "input"),
        ({"inputs": [pb.EmbedInput()]}, "input"),
        ({"inputs": texts("")}, "input"),
        ({"inputs": texts(*["a"] * 257)}, "input"),
        ({"inputs": texts("x" * 513)}, "input"),
        ({"inputs": [pb.EmbedInput(token_ids=pb.TokenIds(ids=[259]))]}, "input"),
        ({"inputs": [pb.EmbedInput(conversation=pb.Conversation())]}, "messages"),
        ({"inputs": texts("a"), "dimensions": SIZE + 1}, "dimensions"),
        ({"inputs": texts("a"), "dimensions": 0}, "dimensions"),
        ({"inputs": texts("a"), "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"inputs": texts("a"), "priority": 101}, "priority"),
        ({"inputs": texts("a"), "pooling": pooling_pb2.Pooling(kind=9)}, "pooling"),
    ],
)
async def test_what_is_wrong_is_named(checkpoint, request_fields, field):
    async with attached(checkpoint) as (frontend, attach):
        error = await failure(frontend.stub.Embed(pb.EmbedRequest(**request_fields)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert from_rpc_error(error).field == field
        assert not attach.unread()


async def test_a_deadline_ends_what_is_under_way(checkpoint):
    async with attached(checkpoint) as (frontend, attach):
        call = ask(frontend, "a", "bb", timeout=0.5)
        asked = await submits(attach, 2)
        assert all(0 < submit.remaining_ms <= 500 for submit in asked)
        error = await failure(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        aborted = {(await attach.next("abort")).handle for _ in asked}
        assert aborted == {submit.handle for submit in asked}


async def test_a_cancelled_call_frees_everything(checkpoint):
    async with attached(checkpoint) as (frontend, attach):
        call = frontend.stub.Embed(pb.EmbedRequest(inputs=texts("a", "bb")))
        asked = await submits(attach, 2)
        call.cancel()
        aborted = {(await attach.next("abort")).handle for _ in asked}
        assert aborted == {submit.handle for submit in asked}


async def test_models_are_listed_with_the_size_of_their_vectors(checkpoint):
    for size in (SIZE, 0):
        async with attached_frontend(checkpoint, embedding_size=size) as (frontend, _):
            await frontend.status.wait("ready")
            [model] = (await frontend.stub.ListModels(pb.ListModelsRequest())).models
            assert model.HasField("embedding_size") is bool(size)
            assert model.embedding_size == size


async def test_an_end_without_its_vector_is_asked_again(checkpoint):
    async with attached(checkpoint) as (frontend, attach):
        call = ask(frontend, "a")
        submit = await attach.next("submit")
        attach.finish(submit, 0, reason=STOP)
        again = await attach.next("submit")
        assert (again.request_id, again.epoch) == (submit.request_id, 1)
        assert again.handle != submit.handle
        assert again.WhichOneof("kind") == "pool"
        # What the old epoch still says is not believed.
        send_vectors(attach, [(again, [9.0] * SIZE)], epoch=0)
        embed(attach, again)
        assert await done(call) == vectors("a")


async def test_duplicates_are_dropped(checkpoint):
    async with attached(checkpoint) as (frontend, attach):
        call = ask(frontend, "a", "bb")
        first, second = await submits(attach, 2)
        send_vectors(attach, [(first, vector_of(prompt_of(first)))])
        send_vectors(attach, [(first, [9.0] * SIZE)])
        attach.finish(first, 0, reason=STOP)
        embed(attach, first, [9.0] * SIZE)
        embed(attach, second)
        assert await done(call) == vectors("a", "bb")
        probe = ask(frontend, "c")
        embed(attach, await attach.next("submit"))
        assert await done(probe) == vectors("c"), "nothing was asked again or aborted"


async def test_a_new_generation_is_asked_for_what_is_missing(checkpoint):
    first = ScriptedScheduler(served(checkpoint, embedding_size=SIZE), generation=1000)
    async with listening(first) as port:
        run = running_frontend(checkpoint, [port])
        frontend = await run.__aenter__()
        attach = await first.attached()
        call = ask(frontend, "a", "bb", "ccc")
        done_first, vector_only, lost = await submits(attach, 3)
        embed(attach, done_first)
        send_vectors(attach, [(vector_only, vector_of(prompt_of(vector_only)))])
        # Read in order: this one's second submit shows that the others were taken.
        attach.finish(lost, 0, reason=STOP)
        assert (await attach.next("submit")).request_id == lost.request_id
    second = ScriptedScheduler(served(checkpoint, embedding_size=SIZE), generation=2000)
    async with listening(second, port):
        attach = await second.attached()
        assert len(attach.hello.held) == 2
        again = await attach.next("submit")
        assert (again.request_id, again.epoch) == (lost.request_id, 2)
        embed(attach, again)
        assert await done(call) == vectors("a", "bb", "ccc")
        await run.__aexit__(None, None, None)


async def test_the_same_generation_sends_again(checkpoint):
    async with attached(checkpoint) as (frontend, attach):
        call = ask(frontend, "a", "bb")
        kept, unheard = await submits(attach, 2)
        send_vectors(attach, [(kept, vector_of(prompt_of(kept)))])
        # Read in order: the frontend has the vector when the end of the stream comes.
        attach.end()
        attach = await attach.next_attach()
        held = {item.request_id: item for item in attach.hello.held}
        assert set(held) == {kept.request_id, unheard.request_id}
        assert all(unpack_u32(item.next_positions) == [0] for item in held.values())
        for submit, vector in ((kept, [9.0] * SIZE), (unheard, vector_of(prompt_of(unheard)))):
            resent = wire.Submit(handle=held[submit.request_id].handle, epoch=0)
            embed(attach, resent, vector)
        assert await done(call) == vectors("a", "bb")


async def test_a_crowded_moment_after_a_loss_is_outlived(checkpoint):
    async with attached(checkpoint, is_resuming=False) as (frontend, attach):
        call = ask(frontend, "a")
        await attach.next("submit")
        attach.end()
        attach = await attach.next_attach()
        again = await attach.next("submit")
        detail = to_detail(OverloadedError("full", retry_after_ms=10))
        attach.send(rejected=wire.Rejected(handle=again.handle, epoch=1, error=detail))
        embed(attach, await attach.next("submit"))
        assert await done(call) == vectors("a")


async def test_one_failure_ends_all_and_names_its_reason(checkpoint):
    async with attached(checkpoint) as (frontend, attach):
        for error, code in (
            (InternalError("the step failed"), grpc.StatusCode.INTERNAL),
            (InvalidRequestError("no vectors", field="model"), grpc.StatusCode.INVALID_ARGUMENT),
        ):
            call = ask(frontend, "a", "bb")
            failed, other = await submits(attach, 2)
            attach.finish(failed, 0, reason=4, error=to_detail(error))
            found = await failure(call)
            aborted = {(await attach.next("abort")).handle for _ in range(2)}
            assert aborted == {failed.handle, other.handle}
            assert (found.code(), found.details()) == (code, error.message)


async def test_a_torn_batch_ends_the_stream_and_not_the_request(checkpoint):
    async with attached(checkpoint, is_resuming=False) as (frontend, attach):
        call = ask(frontend, "a")
        for broken in (
            {"vectors": b""},
            {"vectors": b"abc"},
            {"epochs": b""},
            {"num_cached_tokens": pack_u32([0, 0])},
        ):
            submit = await attach.next("submit")
            arrays = {
                "handles": pack_u32([submit.handle]),
                "epochs": pack_u32([submit.epoch]),
                "num_cached_tokens": pack_u32([0]),
                "vectors": pack_f32([1.0] * SIZE),
                **broken,
            }
            attach.send(vectors=wire.VectorBatch(**arrays))
            attach = await attach.next_attach()
        embed(attach, await attach.next("submit"))
        assert await done(call) == vectors("a")
