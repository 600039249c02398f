"""Thousands of bad inputs over HTTP and gRPC: each gets an answer that blames its sender, in time,
and neither the processes nor the streams beside them notice."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.bad_bodies import BadBody, field_bodies
from support.bad_values import bound_bodies, whole_bodies
from support.clusters import Cluster, start_cluster
from support.raw_http import RawClient, RawResponse, connect, request
from support.streams import completion, eventually_clean, follow_all

NUM_CONNECTIONS = 16
ANSWER_SECONDS = 30.0
CONTEXT = 256
NEIGHBOUR_TOKENS = 200


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


def test_bodies(calm: Cluster) -> None:
    bodies = [*field_bodies(), *bound_bodies(), *whole_bodies()]
    assert len({(body.target, body.data) for body in bodies}) > 2000

    async def check() -> None:
        async with undisturbed(calm):
            found = await faults_of(port_of(calm), bodies)
            assert not found, f"{len(found)} of {len(bodies)}:\n" + "\n".join(found[:60])

    asyncio.run(check())
