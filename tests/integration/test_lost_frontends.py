"""Streams that go on at another frontend when theirs is killed."""

import asyncio
import importlib.util
import os
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
from support.traffic.lost_frontends import (
    KINDS,
    SECONDS,
    body_of,
    broken,
    shown,
    started,
    undisturbed,
    wait_all,
)

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


def kill_all_but(cluster: Cluster, spared: int) -> None:
    """Kill frontends. Of two calls with different `spared` one kills the maker of a stream."""
    pids = list(cluster.local.pids("frontend").values())
    for pid in pids[:spared] + pids[spared + 1 :]:
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

    def text(spared: int | None = None) -> list[str]:
        client = openai.OpenAI(base_url=f"{group.http_url}/v1", api_key="none", max_retries=4)
        parts = []
        for chunk in example.resumed(client, **asked):
            parts += [choice.delta.content or "" for choice in chunk.choices]
            if spared is not None and len(parts) == 12:
                kill_all_but(group, spared)
        return parts

    whole = text()
    for spared in (0, 1):
        assert text(spared) == whole
        wait_all(group)


def test_a_client_of_grpc_reads_on_by_itself(group: Cluster) -> None:
    params = SamplingParams(
        n=2, temperature=1.0, seed=9, max_tokens=40, ignore_eos=True, logprobs=2
    )

    async def events(spared: int | None = None) -> list[Event]:
        found: list[Event] = []
        async with AsyncClient(group.local.grpc_address, resume_seconds=20) as client:
            async for event in client.complete([5, 7, 11] * 9, params):
                found.append(event)
                if spared is not None and len(found) == 20:
                    kill_all_but(group, spared)
        return found

    whole = asyncio.run(events())
    for spared in (0, 1):
        found = asyncio.run(events(spared))
        first, last = found[0], found[-1]
        assert isinstance(first, Opened)
        assert replace(first, request_id="") == replace(whole[0], request_id="")
        assert found[1:-1] == whole[1:-1]
        assert isinstance(last, Closed)
        assert last.usage.completion_tokens == 80
        wait_all(group)
