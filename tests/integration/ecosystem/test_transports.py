"""KV blocks that move between workers by NIXL and by Mooncake's transfer engine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagewire.client.topology_client import self_test
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import Answer, ask_all, prompt_of
from support.cells.worker_flags import with_worker_flags
from support.traffic.streams import eventually_clean

ENGINES = ("nixl", "mooncake")
PROMPTS = [prompt_of(number, 200, end) for number in range(6) for end in range(2)]


@pytest.fixture(scope="module")
def alone(checkpoint: Path) -> list[Answer]:
    """The answers of one worker."""
    cluster = start_cluster(checkpoint)
    try:
        return asyncio.run(ask_all(cluster, PROMPTS))
    finally:
        cluster.local.stop()


@pytest.fixture(scope="module", params=ENGINES)
def apart(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[tuple[str, Cluster]]:
    """A cell with a worker for prompts and two for tokens."""
    cluster = start_cluster(
        checkpoint,
        prefill_workers=1,
        decode_workers=2,
        handoff="always",
        before_start=with_worker_flags("--kv-transport", request.param, "--insecure"),
    )
    yield request.param, cluster
    cluster.local.stop()


def timeline(cluster: Cluster, prompt: list[int]) -> dict[str, Any]:
    """Return where the time of a request went, and how its blocks came."""
    body = {"model": cluster.model, "prompt": prompt, "max_tokens": 4}
    answer = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=60)
    found: dict[str, Any] = answer.json()["usage"]["timeline"][0]
    return found


def test_prompts_are_handed_off(apart: tuple[str, Cluster], alone: list[Answer]) -> None:
    engine, cluster = apart
    found = asyncio.run(ask_all(cluster, PROMPTS))
    assert [one.token_ids for one in found] == [one.token_ids for one in alone]
    seen = timeline(cluster, prompt_of(99, 200))
    assert seen["is_handed_off"]
    assert seen["transport"] == engine
    asyncio.run(eventually_clean(cluster.grpc_address, 3, timeout_seconds=30))


def test_the_self_test_names_the_transport(apart: tuple[str, Cluster]) -> None:
    engine, cluster = apart
    [cell] = asyncio.run(self_test(cluster.grpc_address))
    assert not cell.problems
    assert len(cell.probes) == 2
    for probe in cell.probes:
        assert (probe.transport, probe.is_equal, probe.error) == (engine, True, None)
        assert probe.num_bytes > 0
