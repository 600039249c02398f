"""Thousands of bad inputs over HTTP and gRPC: each gets an answer that blames its sender, in time,
and neither the processes nor the streams beside them notice."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from support.cells.clusters import Cluster, start_cluster
from support.products import WHOLE
from support.traffic.bad_bodies import BadBody, field_bodies
from support.traffic.bad_calls import BadCall, bad_calls
from support.traffic.bad_http import BadExchange, bad_exchanges
from support.traffic.bad_values import bound_bodies, whole_bodies
from support.traffic.raw_http import RawClient, RawResponse, connect, request
from support.traffic.streams import completion, eventually_clean, follow_all

NUM_CONNECTIONS = 16
ANSWER_SECONDS = 30.0

pytestmark = pytest.mark.timeout(300)
CONTEXT = 256
NEIGHBOUR_TOKENS = 200
STREAMED = ("Chat", "Complete", "Resume")
GRPC_ALLOWED = ("OK", "INVALID_ARGUMENT", "NOT_FOUND")


@pytest.fixture(scope="module")
def calm(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """A deployment with a short context: what asks for all of it ends soon."""
    cluster = start_cluster(
        tiny_checkpoint,
        max_model_len=CONTEXT,
        max_num_seqs=64,
        kv_cache_memory="64MiB",
    )
    yield cluster
    cluster.local.stop()


def port_of(cluster: Cluster) -> int:
    return int(cluster.http_url.rpartition(":")[2])


async def http_neighbour(port: int) -> str:
    """Return the text of a stream."""
    body = {
        "prompt": [7] * 20,
        "max_tokens": NEIGHBOUR_TOKENS,
        "temperature": 1,
        "seed": 5,
        "ignore_eos": True,
        "stream": True,
    }
    client = await connect(port)
    await client.send(request("POST", "/v1/completions", body=json.dumps(body).encode()))
    answer = await client.response(seconds=ANSWER_SECONDS)
    await client.close()
    lines = [line for line in answer.body.decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    return "".join(chunk["choices"][0]["text"] for chunk in chunks)


async def grpc_neighbour(address: str, model: str) -> str:
    """Return the text of a stream."""
    asked = completion(model, [9] * 20, NEIGHBOUR_TOKENS, temperature=1.0, seed=6)
    [stream] = await follow_all(address, [asked])
    assert not stream.error
    assert stream.is_closed
    return stream.text


@asynccontextmanager
async def undisturbed(cluster: Cluster) -> AsyncIterator[None]:
    """Run two streams again and again meanwhile, whose text must be what it is alone; nothing may
    be lost or left behind."""
    before, seen = cluster.processes, len(cluster.log)
    port, address = port_of(cluster), cluster.grpc_address
    alone = await http_neighbour(port), await grpc_neighbour(address, cluster.model)
    is_over, num_rounds = asyncio.Event(), 0

    async def stand_by() -> None:
        nonlocal num_rounds
        while not is_over.is_set() or num_rounds < 2:
            async with asyncio.timeout(ANSWER_SECONDS):
                beside = await asyncio.gather(
                    http_neighbour(port), grpc_neighbour(address, cluster.model)
                )
            assert tuple(beside) == alone
            num_rounds += 1

    neighbours = asyncio.create_task(stand_by())
    try:
        yield
    finally:
        is_over.set()
        await neighbours
    assert cluster.processes == before
    assert "Traceback" not in cluster.log[seen:]
    await eventually_clean(address, 1)


async def answer_of(client: RawClient, body: BadBody) -> RawResponse:
    await client.send(request("POST", body.target, body=body.data or b" "))
    return await client.response(seconds=ANSWER_SECONDS)


def fault_of(body: BadBody, answer: RawResponse) -> str:
    """Return what is wrong with an answer; "" for nothing."""
    place = f"{body.target} {body.what}: {answer.status} {answer.body[:300]!r}"
    if answer.status == 200:
        return f"taken: {place}" if body.is_valid is False else ""
    if answer.status >= 500 or answer.status < 400:
        return place
    error = answer.error
    if body.is_valid:
        return f"refused: {place}"
    if body.param != "" and error["param"] != body.param:
        return f"blames {error['param']} and not {body.param}: {place}"
    return ""


async def faults_of(port: int, bodies: Sequence[BadBody]) -> list[str]:
    """Send all, several at a time; return what is wrong."""
    left, found = list(reversed(bodies)), []

    async def work() -> None:
        client = await connect(port)
        while left:
            body = left.pop()
            try:
                answer = await answer_of(client, body)
            except (TimeoutError, EOFError, ConnectionError) as error:
                found.append(f"{body.target} {body.what}: {error!r}")
                client = await connect(port)
                continue
            found.extend(filter(None, [fault_of(body, answer)]))
            if answer.headers.get("connection") == "close":
                client = await connect(port)
        await client.close()

    await asyncio.gather(*(work() for _ in range(NUM_CONNECTIONS)))
    return found


async def status_of(call: BadCall, channel: grpc.aio.Channel) -> str:
    """Return the name of the status of a call."""
    make = channel.unary_stream if call.method in STREAMED else channel.unary_unary
    answer = make(call.path)(call.data, timeout=ANSWER_SECONDS)
    try:
        if call.method in STREAMED:
            async for _ in answer:
                continue
        else:
            await answer
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def grpc_faults_of(address: str, calls: Sequence[BadCall]) -> list[str]:
    """Make all, several at a time; return what is wrong."""
    left, found = list(reversed(calls)), []

    async def work(channel: grpc.aio.Channel) -> None:
        while left:
            call = left.pop()
            status = await status_of(call, channel)
            allowed = ("INVALID_ARGUMENT",) if call.is_decodable is False else GRPC_ALLOWED
            if status not in allowed:
                found.append(f"{call.method} {call.what}: {status}")

    async with grpc.aio.insecure_channel(address) as channel:
        await asyncio.gather(*(work(channel) for _ in range(NUM_CONNECTIONS)))
    return found


def test_calls(calm: Cluster) -> None:
    calls = list(bad_calls())
    assert len({(call.method, call.data) for call in calls}) > 2000

    async def check() -> None:
        async with undisturbed(calm):
            found = await grpc_faults_of(calm.grpc_address, calls)
            assert not found, f"{len(found)} of {len(calls)}:\n" + "\n".join(found[:60])

    asyncio.run(check())


async def odd_calls(channel: grpc.aio.Channel, model: str) -> dict[str, str]:
    """Return what becomes of calls that are wrong as a whole."""
    complete = BadCall("Complete", "", b"").path
    whole = completion(model, [9] * 20, 100).SerializeToString()

    async def status(path: str, data: bytes = whole, **options: Any) -> str:
        try:
            async for _ in channel.unary_stream(path)(data, **options):
                continue
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    async def cancelled() -> str:
        call = channel.unary_stream(complete)(whole)
        call.cancel()
        return (await call.code()).name

    async def without_message() -> str:
        # The library does not tell a handler of it: the call waits for its end in vain.
        call = channel.stream_unary(complete)(iter(()), timeout=0.5)
        return (await call.code()).name

    return {
        "no method": await status(complete + "d"),
        "no service": await status("/pagewire.Nothing/Complete"),
        "no name": await status("/"),
        "no time": await status(complete, timeout=0),
        "little time": await status(complete, timeout=0.001),
        "much metadata": await status(complete, metadata=(("x", "a" * 200_000),)),
        "odd metadata": await status(complete, metadata=(("x-bin", b"\xff" * 100),)),
        "large": await status(complete, b"\0" * (17 * 2**20)),
        "cancelled": await cancelled(),
        "no message": await without_message(),
    }


def test_odd_calls(calm: Cluster) -> None:
    async def check() -> None:
        async with undisturbed(calm), grpc.aio.insecure_channel(calm.grpc_address) as channel:
            for _ in range(3):
                assert await odd_calls(channel, calm.model) == {
                    "no method": "UNIMPLEMENTED",
                    "no service": "UNIMPLEMENTED",
                    "no name": "UNIMPLEMENTED",
                    "no time": "DEADLINE_EXCEEDED",
                    "little time": "DEADLINE_EXCEEDED",
                    "much metadata": "RESOURCE_EXHAUSTED",
                    "odd metadata": "OK",
                    "large": "RESOURCE_EXHAUSTED",
                    "cancelled": "CANCELLED",
                    "no message": "DEADLINE_EXCEEDED",
                }

    asyncio.run(check())


async def raw_fault_of(port: int, sent: BadExchange) -> str:
    """Return what is wrong with the answer to bytes; "" for nothing."""
    client = await connect(port)
    await client.send(sent.data)
    try:
        if sent.is_cut:
            return ""
        answer = await client.response(
            is_head=sent.data.startswith(b"HEAD"), seconds=ANSWER_SECONDS
        )
    except (TimeoutError, EOFError, ConnectionError) as error:
        return f"{sent.what}: {error!r}"
    finally:
        await client.close()
    if answer.status >= 500:
        return f"{sent.what}: {answer.status} {answer.body[:300]!r}"
    if answer.status >= 400 and answer.body:
        assert answer.error
    return ""


async def raw_faults_of(port: int, exchanges: Sequence[BadExchange]) -> list[str]:
    """Send all, several at a time; return what is wrong."""
    left, found = list(reversed(exchanges)), []

    async def work() -> None:
        while left:
            found.extend(filter(None, [await raw_fault_of(port, left.pop())]))

    # Some of them wait for seconds.
    await asyncio.gather(*(work() for _ in range(2 * NUM_CONNECTIONS)))
    return found


@pytest.mark.parametrize("one_of", [4, pytest.param(1, marks=WHOLE)])
def test_http(calm: Cluster, one_of: int) -> None:
    bodies = [*field_bodies(), *bound_bodies(), *whole_bodies()]
    exchanges = list(bad_exchanges())
    # Not every fourth in order, which could be the same value of each field.
    some = random.Random(1).sample(bodies, len(bodies) // one_of)
    assert len({(body.target, body.data) for body in bodies}) > 5000
    assert len({sent.data for sent in exchanges}) > 800

    async def check() -> None:
        port = port_of(calm)
        async with undisturbed(calm):
            parts = await asyncio.gather(faults_of(port, some), raw_faults_of(port, exchanges))
        found = [fault for part in parts for fault in part]
        assert not found, f"{len(found)} faults:\n" + "\n".join(found[:60])

    asyncio.run(check())
