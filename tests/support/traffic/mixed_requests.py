"""Requests of every kind over both public APIs, and answers that can be compared between cells."""

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import pytest

from pagewire import AsyncClient, SamplingParams
from pagewire.offline.outputs import OutputCollector
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from support.cells.clusters import Cluster

PATIENCE_SECONDS: Final = 120.0
LOGPROB_TOLERANCE: Final = 1e-4
LONG: Final = 96
"""Tokens of a prompt from which on it is worth handing off."""

LETTER: Final = 68
"""The token of a lower-case letter."""
PATTERN: Final = "([a-f]{4}-){3}[0-9]{2}"
_KINDS: Final[Mapping[str, dict[str, Any]]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0, "top_p": 0.9},
    "choices": {"temperature": 1.0, "n": 3},
    "guided": {"temperature": 1.0, "structured_outputs": {"regex": PATTERN}, "max_tokens": 40},
    "logprobs": {"temperature": 0.7, "logprobs": 3},
    "penalties": {"temperature": 0.8, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    "beams": {"temperature": 0.0, "n": 3, "use_beam_search": True},
}
_APIS: Final = ("http", "grpc", "http-stream", "grpc")


@dataclass(frozen=True, slots=True)
class Mixed:
    """One request.

    Attributes:
        api: "http", "http-stream" or "grpc".
        kind: Of what it is an example.
        is_fresh: Whether no other request has a prompt that begins with the same block.
        fields: Of sampling, as both APIs call them.
    """

    api: str
    kind: str
    prompt: list[int]
    is_fresh: bool
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        choices: Token ids (HTTP does not tell them), text and reason of the end, in order.
        logprobs: Those of the chosen tokens and their alternatives, in order.
        timelines: What usage says of each choice; gRPC's client does not keep it.
    """

    choices: list[tuple[list[int], str, str | None]]
    logprobs: list[float] = field(default_factory=list)
    timelines: list[dict[str, Any]] = field(default_factory=list)


def make_requests(count: int, seed: int) -> list[Mixed]:
    """Return requests whose prompts are short, long and fresh, or long with a prefix that a few of
    them share; equal seeds give equal requests."""
    dice = random.Random(seed)
    prefixes = [dice.choices(range(3, 500), k=80) for _ in range(6)]
    requests = []
    for number in range(count):
        kind = list(_KINDS)[number % len(_KINDS)]
        # Every kind meets every API and every sort of prompt.
        api = _APIS[number // len(_KINDS) % len(_APIS)]
        if kind == "beams" and api == "http-stream":
            api = "http"
        sort = ("short", "fresh", "fresh", "shared")[dice.randrange(4)]
        length = dice.randrange(1, 24) if sort == "short" else dice.randrange(LONG, 180)
        prompt = dice.choices(range(3, 500), k=length)
        if sort == "shared":
            prefix = dice.choice(prefixes)
            prompt[: len(prefix)] = prefix
        # Inside a character it would show in the text of the answer.
        prompt[-1] = LETTER
        fields = {"max_tokens": dice.randrange(4, 20), "seed": number, **_KINDS[kind]}
        fields["ignore_eos"] = kind not in ("guided", "beams")
        requests.append(Mixed(api, kind, prompt, sort == "fresh", fields))
    return requests


async def ask_mixed(
    cluster: Cluster,
    requests: Sequence[Mixed],
    *,
    most_at_once: int = 1000,
    on_answer: Callable[[], None] = lambda: None,
) -> list[Answer]:
    """Send requests at once, or as many as may be; return what came of each.

    `on_answer` is called whenever one has ended. Raises an error where one failed.
    """
    turns = asyncio.Semaphore(most_at_once)
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(timeout=PATIENCE_SECONDS, limits=limits) as http,
        AsyncClient(cluster.grpc_address, timeout_seconds=PATIENCE_SECONDS) as grpc,
    ):

        async def ask(request: Mixed) -> Answer:
            async with turns:
                if request.api == "grpc":
                    answer = await _ask_grpc(grpc, request)
                else:
                    answer = await _ask_http(http, cluster, request)
            on_answer()
            return answer

        return await asyncio.gather(*map(ask, requests))


def assert_equal(
    requests: Sequence[Mixed], found: Sequence[Answer], wanted: Sequence[Answer]
) -> None:
    """Fail unless everything a client sees is equal, log-probabilities within a tolerance."""
    for request, one, other in zip(requests, found, wanted, strict=True):
        assert one.choices == other.choices, request
        assert one.logprobs == pytest.approx(other.logprobs, abs=LOGPROB_TOLERANCE), request
        if request.kind == "guided":
            [(_, text, _)] = one.choices
            assert re.fullmatch(PATTERN, text), request


async def _ask_grpc(client: AsyncClient, request: Mixed) -> Answer:
    fields = dict(request.fields)
    if "structured_outputs" in fields:
        fields["structured_outputs"] = StructuredOutputsParams(**fields["structured_outputs"])
    params = SamplingParams(**fields)
    collector = OutputCollector(params.n, params.logprobs is not None, False)
    async for event in client.complete(request.prompt, params):
        collector.add(event)
    outputs = collector.result(None).outputs
    assert len(outputs) == params.n
    logprobs = [
        entry.logprob
        for output in outputs
        for entries in output.logprobs or ()
        for entry in entries.values()
    ]
    return Answer([(one.token_ids, one.text, one.finish_reason) for one in outputs], logprobs)


async def _ask_http(client: httpx.AsyncClient, cluster: Cluster, request: Mixed) -> Answer:
    is_stream = request.api == "http-stream"
    body = {"model": cluster.model, "prompt": request.prompt, **request.fields}
    if is_stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    response = await client.post(f"{cluster.http_url}/v1/completions", json=body)
    assert response.status_code == 200, f"{request}: {response.text}"
    if is_stream:
        lines = [line.removeprefix("data: ") for line in response.text.split("\n\n")]
        assert lines[-2:] == ["[DONE]", ""], response.text
        chunks = [json.loads(line) for line in lines[:-2]]
    else:
        chunks = [response.json()]
    assert not any("error" in chunk for chunk in chunks), response.text
    choices = [_choice(chunks, index) for index in range(request.fields.get("n", 1))]
    logprobs = [number for index in range(len(choices)) for number in _logprobs(chunks, index)]
    return Answer(choices, logprobs, chunks[-1]["usage"].get("timeline", []))


def _pieces(chunks: Sequence[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [one for chunk in chunks for one in chunk["choices"] if one["index"] == index]


def _choice(chunks: Sequence[dict[str, Any]], index: int) -> tuple[list[int], str, str | None]:
    pieces = _pieces(chunks, index)
    reasons = [piece["finish_reason"] for piece in pieces if piece["finish_reason"]]
    assert len(reasons) == 1, pieces
    return [], "".join(piece["text"] for piece in pieces), reasons[0]


def _logprobs(chunks: Sequence[dict[str, Any]], index: int) -> list[float]:
    """Return them in an order that does not depend on how the tokens were cut into chunks."""
    told = [piece["logprobs"] for piece in _pieces(chunks, index) if piece.get("logprobs")]
    own = [number for one in told for number in one["token_logprobs"]]
    tops = [top for one in told for top in one["top_logprobs"]]
    return own + [number for top in tops for number in top.values()]
