"""Streams that go on at another frontend when theirs is killed."""

import asyncio
import importlib.util
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from pagewire import AsyncClient, SamplingParams
from pagewire.client.events import Closed, Event, Opened
from support.cells.clusters import Cluster
from support.traffic import lost_responses
from support.traffic.lost_frontends import (
    KINDS,
    SECONDS,
    body_of,
    broken,
    maker_of,
    shown,
    started,
    undisturbed,
    wait_all,
)
from support.traffic.rolled_frontends import rolled

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python" / "resumed_stream.py"


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three frontends before one worker."""
    with started(tmp_path_factory.mktemp("lost")) as cluster:
        yield cluster


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_on_where_its_frontend_was_killed(group: Cluster, kind: str) -> None:
    path, body = body_of(group.model, kind, 7)
    whole = undisturbed(group.http_url, path, body)
    joined, _ = broken(group, path, body, len(whole.read) // 2)
    assert shown(joined) == shown(whole)
    assert [one for one, _ in joined.read] == [
        f"{joined.stream_id}:{number}" for number in range(len(joined.read))
    ]
    again = httpx.get(f"{group.http_url}/v1/streams/{joined.stream_id}", timeout=SECONDS)
    assert again.text == "".join(f"id: {name}\ndata: {data}\n\n" for name, data in joined.read)
    wait_all(group)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ("background", "polled") else pytest.mark.long)
        for kind in lost_responses.KINDS
    ],
)
def test_a_response_goes_on_where_its_frontend_was_killed(group: Cluster, kind: str) -> None:
    is_equal, _ = lost_responses.survives(group, kind, 3, random.Random(3))
    assert is_equal
    wait_all(group)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_frontends_that_are_replaced_one_by_one_lose_nothing(group: Cluster) -> None:
    found = rolled(group, num_rounds=1, num_readers=1, settle_seconds=0.5).found
    assert found["asked"] > 20
    assert (found["failed"], found["generated again"]) == (0, 0)
    assert found["equal"] == found["asked"]


def kill_maker(cluster: Cluster, stream_id: str) -> None:
    """Kill the frontend that made a stream."""
    _, pid = maker_of(cluster, stream_id)
    os.kill(pid, signal.SIGKILL)


def test_the_example_reads_on_by_itself(group: Cluster) -> None:
    spec = importlib.util.spec_from_file_location("resumed_stream", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    asked: dict[str, Any] = {
        "model": group.model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 40,
        "temperature": 1.0,
        "seed": 5,
        "extra_body": {"ignore_eos": True},
    }

    def text(*, is_killed: bool) -> list[str]:
        names: list[str] = []

        def note(response: httpx.Response) -> None:
            names.append(response.headers["x-pagewire-stream"])

        http = httpx.Client(event_hooks={"response": [note]}, timeout=SECONDS)
        url = f"{group.http_url}/v1"
        client = openai.OpenAI(base_url=url, api_key="none", http_client=http)
        parts: list[str] = []
        for chunk in example.resumed(client, **asked):
            parts += [choice.delta.content or "" for choice in chunk.choices]
            if is_killed and len(parts) == 12:
                kill_maker(group, names[0])
        return parts

    assert text(is_killed=True) == text(is_killed=False)
    wait_all(group)


def test_a_client_of_grpc_reads_on_by_itself(group: Cluster) -> None:
    params = SamplingParams(
        n=2, temperature=1.0, seed=9, max_tokens=40, ignore_eos=True, logprobs=2
    )

    async def events(*, is_killed: bool) -> list[Event]:
        found: list[Event] = []
        async with AsyncClient(group.local.grpc_address, resume_seconds=20) as client:
            async for event in client.complete([5, 7, 11] * 9, params):
                found.append(event)
                if is_killed and len(found) == 20:
                    assert isinstance(found[0], Opened)
                    kill_maker(group, found[0].stream_id)
        return found

    killed, whole = (asyncio.run(events(is_killed=one)) for one in (True, False))
    assert isinstance(killed[0], Opened)
    assert killed[0] == replace(
        whole[0], request_id=killed[0].request_id, stream_id=killed[0].stream_id
    )
    assert killed[1:-1] == whole[1:-1]
    assert isinstance(killed[-1], Closed)
    assert killed[-1].usage.completion_tokens == 80
    wait_all(group)
