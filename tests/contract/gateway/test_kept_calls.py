"""Calls over gRPC that go on without their client: read on by Resume, and made once per key."""

import asyncio

import grpc
import grpc.aio
import pytest
from contract.frontend_clients import completion
from contract.frontend_gateway import gateway
from contract.frontend_groups import frontend_group
from contract.frontend_peers import (
    ids_of,
)

from pagewire_protos.common.v1.sampling_pb2 import FINISH_REASON_FAILED
from pagewire_protos.frontend.v1 import batch_pb2, batch_pb2_grpc
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import OverloadedError
from pagewire_shared.rpc.errors import from_rpc_error, to_detail

CONTINUE = (("x-pagewire-on-disconnect", "continue"),)
KEY = (("idempotency-key", "order-7"),)
TEXT = "yes, and no"


async def messages(call):
    return [message async for message in call]


def resumed(stub, stream_id, num_received=0, **fields):
    request = pb.ResumeRequest(stream_id=stream_id, num_received=num_received)
    return messages(stub.Resume(request, **fields))


def forms(answer):
    """The messages of any of the three kinds, which have equal fields."""
    return [message.SerializeToString() for message in answer]


async def code_of(work):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await work
    error = from_rpc_error(caught.value)
    return error.code, error.field


async def answered(call, attach, text=TEXT):
    """Let a call be answered a token at a time; return its messages."""
    reading = asyncio.create_task(messages(call))
    submit, ids = await attach.next("submit"), ids_of(text)
    for position in range(len(ids)):
        attach.tokens(submit, position, ids[position : position + 1])
        await asyncio.sleep(0.005)
    attach.finish(submit, len(ids))
    return await reading


async def test_a_stream_is_read_on_from_any_message(checkpoint):
    async with gateway(checkpoint) as (client, attach, frontend):
        call = frontend.stub.Complete(completion(), metadata=CONTINUE)
        read = [await call.read()]
        submit, ids = await attach.next("submit"), ids_of(TEXT)
        stream_id = read[0].opened.stream_id
        assert ("x-pagewire-stream", stream_id) in tuple(await call.initial_metadata())
        attach.tokens(submit, 0, ids[:2])
        read.append(await call.read())
        call.cancel()
        reading = asyncio.create_task(resumed(frontend.stub, stream_id, len(read)))
        attach.tokens(submit, 2, ids[2:5])
        await asyncio.sleep(0.05)
        attach.tokens(submit, 5, ids[5:])
        attach.finish(submit, len(ids))
        whole = forms(read) + forms(await reading)
        assert not attach.unread()
        text = b"".join(pb.CompleteResponse.FromString(one).delta.text.encode() for one in whole)
        assert text == TEXT.encode()
        for received in range(len(whole) + 1):
            assert forms(await resumed(frontend.stub, stream_id, received)) == whole[received:]
        for beyond in (len(whole) + 1, 2**31):
            found = await code_of(resumed(frontend.stub, stream_id, beyond))
            assert found == ("invalid_value", "num_received")
        missing = await client.get(f"/v1/streams/{stream_id}")
        assert missing.status_code == 404
        assert "is read over gRPC" in missing.json()["error"]["message"]


async def test_a_stream_that_is_dropped_does_not_look_whole(checkpoint):
    async with gateway(checkpoint) as (_, attach, frontend):
        call = frontend.stub.Complete(completion(), metadata=CONTINUE)
        stream_id = (await call.read()).opened.stream_id
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("yes"))
        await call.read()
        resuming = asyncio.create_task(resumed(frontend.stub, stream_id, 2))
        await asyncio.sleep(0.1)
        detail = to_detail(OverloadedError("full"))
        attach.finish(submit, 3, reason=FINISH_REASON_FAILED, error=detail)
        assert (await code_of(resuming))[0] == detail.code
        # The error stays the end of the stream, for whoever has all of its messages, too.
        assert (await code_of(resumed(frontend.stub, stream_id, 2)))[0] == detail.code


async def test_a_key_is_answered_once(checkpoint):
    chat = pb.ChatRequest(
        model="tiny", messages=[pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="hi")]
    )
    async with gateway(checkpoint) as (client, attach, frontend):
        stub = frontend.stub
        for number, (method, request) in enumerate(
            ((stub.Complete, completion()), (stub.Chat, chat))
        ):
            key = (("idempotency-key", f"order-{number}"),)
            first = await answered(method(request, metadata=key), attach)
            again = method(request, metadata=key)
            assert forms(await messages(again)) == forms(first)
            assert ("idempotent-replayed", "true") in tuple(await again.initial_metadata())
            assert forms(await resumed(stub, first[0].opened.stream_id, 1)) == forms(first)[1:]
            assert first[-1].closed.usage.completion_tokens == len(ids_of(TEXT))
        other = stub.Complete(completion(seed=9), metadata=(("idempotency-key", "order-0"),))
        assert await code_of(other.read()) == ("idempotency_key_reused", "idempotency-key")
        body = {"model": "tiny", "prompt": "hi"}
        refused = await client.post(
            "/v1/completions", json=body, headers={"idempotency-key": "order-0"}
        )
        assert refused.status_code == 422
        assert not attach.unread()


async def test_the_key_of_what_failed_is_free(checkpoint):
    detail = to_detail(OverloadedError("full"))
    async with gateway(checkpoint) as (_, attach, frontend):
        call = frontend.stub.Complete(completion(), metadata=KEY)
        reading = asyncio.create_task(call.read())
        submit = await attach.next("submit")
        attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
        assert (await code_of(reading))[0] == detail.code
        answer = await answered(frontend.stub.Complete(completion(), metadata=KEY), attach)
        assert answer[-1].HasField("closed")
        kept = asyncio.create_task(
            messages(frontend.stub.Complete(completion(), metadata=CONTINUE))
        )
        submit = await attach.next("submit")
        attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
        assert (await code_of(kept))[0] == detail.code


async def test_another_tenant_finds_no_stream(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=sk-a\nb=sk-b\n")
    a, b = (("authorization", "Bearer sk-a"),), (("authorization", "Bearer sk-b"),)
    async with gateway(checkpoint, api_key_file=str(file)) as (_, attach, frontend):
        first = await answered(frontend.stub.Complete(completion(), metadata=KEY + a), attach)
        stream_id = first[0].opened.stream_id
        assert (await code_of(resumed(frontend.stub, stream_id, metadata=b)))[0] == (
            "stream_not_found"
        )
        assert len(await resumed(frontend.stub, stream_id, metadata=a)) == len(first)
        # The key of another tenant is another key.
        other = await answered(frontend.stub.Complete(completion(), metadata=KEY + b), attach)
        assert other[0].opened.stream_id != stream_id


async def test_what_cannot_be_kept_is_refused(checkpoint):
    async with gateway(checkpoint) as (client, attach, frontend):
        stub = frontend.stub
        for metadata, field in (
            ((("x-pagewire-on-disconnect", "perhaps"),), "x-pagewire-on-disconnect"),
            ((("idempotency-key", ""),), "idempotency-key"),
            ((("idempotency-key", "k" * 256),), "idempotency-key"),
        ):
            found = await code_of(stub.Complete(completion(), metadata=metadata).read())
            assert found == ("invalid_value", field)
        batches = batch_pb2_grpc.BatchServiceStub(frontend.channel)
        call = batches.GenerateBatch(batch_pb2.GenerateBatchRequest(), metadata=KEY)
        assert await code_of(call.read()) == ("unsupported_parameter", "idempotency-key")
        assert (await code_of(resumed(stub, "stream_1")))[0] == "stream_not_found"
        body = {"model": "tiny", "prompt": "hi", "stream": True}
        headers = dict(CONTINUE)
        sent = asyncio.create_task(client.post("/v1/completions", json=body, headers=headers))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("yes"))
        attach.finish(submit, 3)
        stream_id = (await sent).headers["x-pagewire-stream"]
        with pytest.raises(grpc.aio.AioRpcError, match="is read over HTTP"):
            await resumed(stub, stream_id)
    async with gateway(checkpoint, stream_retention_seconds=0.0) as (_, _, frontend):
        for metadata in (KEY, CONTINUE):
            with pytest.raises(grpc.aio.AioRpcError, match="--stream-retention-seconds is 0"):
                await frontend.stub.Complete(completion(), metadata=metadata).read()


async def test_another_frontend_reads_on(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (maker, reader):
        one, attach, other = maker.frontend, maker.attach, reader.frontend
        first = await answered(one.stub.Complete(completion(), metadata=KEY), attach)
        stream_id = first[0].opened.stream_id
        assert forms(await resumed(other.stub, stream_id, 3)) == forms(first)[3:]
        again = await messages(other.stub.Complete(completion(), metadata=KEY))
        assert forms(again) == forms(first)
        assert not reader.attach.unread()
        assert (await reader.client.get(f"/v1/streams/{stream_id}")).status_code == 404
