"""Resumes kept streams at random events, over several frontends, while they run and afterwards.

    cd tests && python -m support.traffic.random_resumes --resumes 10000

The streams are of random bytes, whose characters are cut anywhere, of several choices with
log-probabilities, and of tool calls; over HTTP, and over gRPC. What was read before a cursor and
what comes behind it are the stream that the same request gives undisturbed.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import httpx

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1.inference_pb2_grpc import InferenceServiceStub
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint

NUM_FRONTENDS = 3
NUM_TOKENS = 96
NUM_READERS = 20
NUM_AT_ONCE = 4
SECONDS = 120.0
CONTINUE = {"x-pagewire-on-disconnect": "continue"}
TOOL = {
    "type": "function",
    "function": {
        "name": "book",
        "parameters": {"type": "object", "properties": {"seats": {"type": "integer"}}},
    },
}
ASKED = [{"role": "user", "content": "Two seats, please."}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "some bytes", "ignore_eos": True}),
    ("/v1/completions", {"prompt": "three", "n": 3, "logprobs": 2, "ignore_eos": True}),
    (
        "/v1/chat/completions",
        {
            "messages": ASKED,
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "book"}},
        },
    ),
    ("/v1/chat/completions", {"messages": ASKED, "n": 2, "logprobs": True}),
]


def events_of(content: bytes) -> list[bytes]:
    """Return the events of a stream, each with its empty line."""
    return [part + b"\n\n" for part in content.split(b"\n\n")[:-1]]


def said(events: list[bytes]) -> dict[int, tuple[str, list[Any], str | None]]:
    """Return text with tool calls, log-probabilities and end of each choice."""
    parts: dict[int, tuple[list[str], list[Any], list[str]]] = {}
    for event in events:
        data = event.rpartition(b"data: ")[2].strip()
        for choice in [] if data == b"[DONE]" else json.loads(data)["choices"]:
            text, logprobs, ends = parts.setdefault(choice["index"], ([], [], []))
            delta = choice.get("delta", {})
            calls = (call["function"].get("arguments", "") for call in delta.get("tool_calls", []))
            text.extend((choice.get("text") or delta.get("content") or "", *calls))
            values = choice.get("logprobs") or {}
            logprobs.extend(values.get("token_logprobs") or values.get("content") or [])
            ends.extend([choice["finish_reason"]] if choice["finish_reason"] else [])
    return {
        index: ("".join(text), logprobs, ends[0] if ends else None)
        for index, (text, logprobs, ends) in parts.items()
    }


async def http_stream(cluster: Cluster, dice: random.Random, found: Counter[str]) -> None:
    """Let a stream be read on by many readers, and compare each with the whole."""
    path, body = dice.choice(BODIES)
    body = {**body, "model": cluster.model, "max_tokens": NUM_TOKENS, "temperature": 1.0}
    body |= {"seed": dice.getrandbits(60), "stream": True}
    client_of: Callable[[], httpx.AsyncClient] = lambda: httpx.AsyncClient(  # noqa: E731
        base_url=cluster.http_url, timeout=SECONDS
    )
    async with (
        client_of() as client,
        client.stream("POST", path, json=body, headers=CONTINUE) as answer,
    ):
        stream_id = answer.headers["x-pagewire-stream"]
        async for _ in answer.aiter_bytes():
            break  # and leave

    async def read_on(first: int) -> bytes:
        # A connection of its own: the kernel spreads them over the frontends.
        async with client_of() as client:
            url, how = f"/v1/streams/{stream_id}", dice.randrange(3)
            last = {"last-event-id": f"{stream_id}:{first - 1}"} if first else {}
            if how == 0 and first:
                answer = await client.get(url, headers=last)
            elif how == 1 and first:
                answer = await client.post(path, json=body, headers=last)
            else:
                answer = await client.get(url, params={"from": first})
        return answer.content

    firsts = [dice.randrange(NUM_TOKENS // 2) for _ in range(NUM_READERS)]
    early = await asyncio.gather(*map(read_on, firsts))
    whole = events_of(await read_on(0))
    for first, rest in zip(firsts, early, strict=True):
        found["equal"] += whole[first:] == events_of(rest)
    late = [dice.randrange(len(whole) + 1) for _ in range(NUM_READERS)]
    for first, rest in zip(late, await asyncio.gather(*map(read_on, late)), strict=True):
        found["equal"] += whole[first:] == events_of(rest)
    async with client_of() as client:
        undisturbed = await client.post(path, json=body)
    found["undisturbed"] += said(whole) == said(events_of(undisturbed.content))
    found["streams"] += 1


async def call_stream(cluster: Cluster, dice: random.Random, found: Counter[str]) -> None:
    """Do the same over gRPC."""
    options = pb.GenerationOptions(
        sampling=sampling_pb2.SamplingParams(
            max_tokens=NUM_TOKENS, temperature=1.0, seed=dice.getrandbits(60), ignore_eos=True
        ),
        n=dice.choice((1, 3)),
    )
    request = pb.CompleteRequest(model=cluster.model, text="some bytes", options=options)

    async def read(ask: Callable[[InferenceServiceStub], Any]) -> list[Any]:
        async with grpc.aio.insecure_channel(
            cluster.grpc_address, options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            return [message async for message in ask(InferenceServiceStub(channel))]

    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        metadata = tuple(CONTINUE.items())
        call: Any = InferenceServiceStub(channel).Complete(request, metadata=metadata)
        stream_id = (await call.read()).opened.stream_id
        call.cancel()

    async def read_on(first: int) -> list[bytes]:
        wanted = pb.ResumeRequest(stream_id=stream_id, num_received=first)
        return [one.SerializeToString() for one in await read(lambda stub: stub.Resume(wanted))]

    firsts = [dice.randrange(NUM_TOKENS // 2) for _ in range(NUM_READERS)]
    early = await asyncio.gather(*map(read_on, firsts))
    whole = await read_on(0)
    for first, rest in zip(firsts, early, strict=True):
        found["equal"] += whole[first:] == rest
    late = [dice.randrange(len(whole) + 1) for _ in range(NUM_READERS)]
    for first, rest in zip(late, await asyncio.gather(*map(read_on, late)), strict=True):
        found["equal"] += whole[first:] == rest
    kept = [pb.CompleteResponse.FromString(one) for one in whole]
    undisturbed = await read(lambda stub: stub.Complete(request))
    found["undisturbed"] += tokens_of(kept) == tokens_of(undisturbed)
    found["streams"] += 1


def tokens_of(messages: list[Any]) -> dict[int, tuple[list[int], str]]:
    """Return tokens and text of each choice."""
    found: dict[int, tuple[list[int], str]] = {}
    for message in messages:
        for part in (message.delta, message.finished):
            ids, text = found.setdefault(part.choice, ([], ""))
            found[part.choice] = [*ids, *getattr(part, "token_ids", ())], text + part.text
    return found


async def run(cluster: Cluster, num_resumes: int, seed: int) -> Counter[str]:
    """Return how many resumes, and how many whole streams, were equal."""
    found: Counter[str] = Counter()
    turns = asyncio.Semaphore(NUM_AT_ONCE)

    async def one(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        async with turns:
            await (call_stream if number % 4 == 3 else http_stream)(cluster, dice, found)

    await asyncio.gather(*map(one, range(num_resumes // (2 * NUM_READERS))))
    return found


def main() -> None:
    """Print what was equal; the status is that of the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--resumes", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder) / "tiny", hidden=64, layers=2)
        cluster = start_cluster(checkpoint, frontends=NUM_FRONTENDS)
        try:
            began = time.monotonic()
            found = asyncio.run(run(cluster, arguments.resumes, arguments.seed))
            seconds = time.monotonic() - began
        finally:
            cluster.local.stop()
    num_streams = found["streams"]
    num_resumes = num_streams * 2 * NUM_READERS
    print(
        f"{num_resumes} resumes of {num_streams} streams over {NUM_FRONTENDS} frontends in "
        f"{seconds:.0f} s: {found['equal']} equal, {found['undisturbed']} streams as undisturbed"
    )
    sys.exit(found["equal"] != num_resumes or found["undisturbed"] != num_streams)


if __name__ == "__main__":
    main()
