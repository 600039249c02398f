"""Clients that read slowly or not at all, before a scripted scheduler: their tokens are merged,
their own stream waits or is cut, and nobody else notices."""

import asyncio
import contextlib
import json
import socket
from contextlib import asynccontextmanager

import grpc.aio
import httpx
import pytest
from contract.frontend_peers import (
    LENGTH,
    WAIT_SECONDS,
    ScriptedScheduler,
    ids_of,
    listening,
    running_frontend,
    served,
)

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import inference_pb2_grpc

NUM_TOKENS = 12_000
TEXT = "".join(chr(ord("a") + index % 26) for index in range(NUM_TOKENS))
BODY = {"model": "tiny", "prompt": "x", "max_tokens": NUM_TOKENS, "stream": True, "temperature": 0}


@asynccontextmanager
async def long_context(checkpoint, **settings):
    """Yield (frontend, attach) for answers of many tokens."""
    scheduler = ScriptedScheduler(served(checkpoint, max_model_len=2 * NUM_TOKENS))
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port], **settings) as frontend,
    ):
        attach = await scheduler.attached()
        await frontend.status.wait("ready")
        yield frontend, attach


@contextlib.contextmanager
def unread_request(frontend, path="/v1/completions", body=BODY):
    """Send a request over a socket whose window is small; yield the socket, unread."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", frontend.port))
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + data)
        connection.setblocking(False)
        yield connection


async def read_to_end(connection):
    loop = asyncio.get_running_loop()
    data = bytearray()
    async with asyncio.timeout(WAIT_SECONDS):
        while piece := await loop.sock_recv(connection, 65536):
            data += piece
    return bytes(data)


def events_of(response):
    """Return the values of the events in a chunked HTTP response."""
    _, _, rest = response.partition(b"\r\n\r\n")
    body = bytearray()
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    lines = [line for line in body.decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def send_all(attach, submit):
    """Send the answer token by token, as steps do."""
    for position, token_id in enumerate(ids_of(TEXT)):
        attach.tokens(submit, position, [token_id])
        if position % 200 == 0:
            await asyncio.sleep(0)
    attach.finish(submit, NUM_TOKENS, reason=LENGTH)


async def test_what_a_slow_client_leaves_is_merged_and_nothing_is_lost(checkpoint):
    async with long_context(checkpoint) as (frontend, attach):
        with unread_request(frontend) as connection:
            submit = await attach.next("submit")
            await send_all(attach, submit)
            # The request is over for everybody but its reader: a second one is served meanwhile.
            async with httpx.AsyncClient(base_url=frontend.http_url, timeout=WAIT_SECONDS) as other:
                asked = asyncio.create_task(
                    other.post("/v1/completions", json={**BODY, "stream": False, "max_tokens": 2})
                )
                attach.say(await attach.next("submit"), "ok")
                assert (await asked).json()["choices"][0]["text"] == "ok"
            events = events_of(await read_to_end(connection))
    assert "".join(event["choices"][0]["text"] for event in events) == TEXT
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    assert len(events) < NUM_TOKENS / 2, "the tokens were not merged"


async def test_a_client_that_takes_nothing_is_cut_and_its_request_ends(checkpoint):
    async with long_context(checkpoint, stall_seconds=0.3) as (frontend, attach):
        with unread_request(frontend) as connection:
            submit = await attach.next("submit")
            for position, token_id in enumerate(ids_of(TEXT)[:-1]):
                attach.tokens(submit, position, [token_id])
            abort = await attach.next("abort")
            assert abort.handle == submit.handle
            with pytest.raises(ConnectionResetError):
                await read_to_end(connection)


async def test_a_client_that_reads_at_times_is_not_cut(checkpoint):
    async with long_context(checkpoint, stall_seconds=1.5) as (frontend, attach):
        with unread_request(frontend) as connection:
            submit = await attach.next("submit")
            await send_all(attach, submit)
            loop = asyncio.get_running_loop()
            head = b""
            # Four pauses that together are longer than the limit.
            for _ in range(4):
                await asyncio.sleep(0.5)
                while len(head) % 262144 < 196608:
                    head += await loop.sock_recv(connection, 65536)
                head += await loop.sock_recv(connection, 65536)
            events = events_of(head + await read_to_end(connection))
    assert "".join(event["choices"][0]["text"] for event in events) == TEXT


async def test_a_client_that_leaves_while_it_is_behind_ends_its_request(checkpoint):
    async with long_context(checkpoint) as (frontend, attach):
        with unread_request(frontend) as connection:
            submit = await attach.next("submit")
            for position, token_id in enumerate(ids_of(TEXT)[:-1]):
                attach.tokens(submit, position, [token_id])
            await asyncio.sleep(0.2)
            connection.close()
            assert (await attach.next("abort")).handle == submit.handle


async def test_an_error_reaches_a_client_that_was_behind_after_its_text(checkpoint):
    async with long_context(checkpoint, max_request_seconds=4.0) as (frontend, attach):
        with unread_request(frontend) as connection:
            submit = await attach.next("submit")
            ids = ids_of(TEXT)[:-1]
            for position, token_id in enumerate(ids):
                attach.tokens(submit, position, [token_id])
            await attach.next("abort")
            response = await read_to_end(connection)
    assert b"deadline_exceeded" in response[-400:]
    assert b"[DONE]" not in response
    texts = response.count(b'"text":"')
    assert 0 < texts < len(ids)


async def test_a_grpc_client_that_takes_nothing_is_cut_and_its_request_ends(checkpoint):
    # What fits into the windows of a channel counts as taken.
    small = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024)]
    async with (
        long_context(checkpoint, stall_seconds=0.4) as (frontend, attach),
        grpc.aio.insecure_channel(frontend.address, options=small) as channel,
    ):
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        sampling = sampling_pb2.SamplingParams(max_tokens=NUM_TOKENS)
        options = pb.GenerationOptions(sampling=sampling)
        call = stub.Complete(pb.CompleteRequest(text="x", options=options))
        submit = await attach.next("submit")
        for position, token_id in enumerate(ids_of(TEXT)[:-1]):
            attach.tokens(submit, position, [token_id])
            if position % 200 == 0:
                await asyncio.sleep(0)
        assert (await attach.next("abort")).handle == submit.handle
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in call:
                pass
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        # Another stream on the same channel goes on.
        other = stub.Complete(pb.CompleteRequest(text="y"))
        attach.say(await attach.next("submit"), "ok")
        texts = [message.delta.text async for message in other if message.HasField("delta")]
        assert "".join(texts) == "ok"


async def test_many_streams_end_together(checkpoint):
    async with long_context(checkpoint) as (frontend, attach):
        with contextlib.ExitStack() as stack:
            body = {**BODY, "max_tokens": 3}
            connections = [
                stack.enter_context(unread_request(frontend, body=body)) for _ in range(20)
            ]
            for _ in connections:
                attach.say(await attach.next("submit"), "abc")
            for connection in connections:
                events = events_of(await read_to_end(connection))
                assert "".join(event["choices"][0]["text"] for event in events) == "abc"
        with unread_request(frontend, body=body):
            # An abort of what has ended would come before it.
            await attach.next("submit")
