"""Several frontend processes of a real deployment behind one port."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pagewire import AsyncClient, SamplingParams
from pagewire.config import config_from_keywords
from pagewire.local.cluster import LocalCluster
from pagewire_frontend.group.exposition import GREATEST
from pagewire_shared.errors import StartupError
from support.cells.clusters import TINY, Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import (
    Serve,
    children_of,
    free_port,
    free_ports,
    is_running,
    wait_until,
)
from support.traffic.streams import eventually_clean

NUM_CONNECTIONS = 64
NUM_TOKENS = 200
MAX_ROUNDS = 5
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two frontends before one worker, with a port for the metrics of each."""
    folder = tmp_path_factory.mktemp("frontends") / "model"
    checkpoint = make_checkpoint(folder, hidden=128, layers=4)
    cluster = start_cluster(
        checkpoint,
        frontends=2,
        metrics_port=free_ports(8),
        max_model_len=512,
        kv_cache_memory="64MiB",
    )
    yield cluster
    cluster.local.stop()


def own_metrics(cluster: Cluster, index: int) -> dict[tuple[str, ...], float]:
    """Return the metrics of one frontend, from a port of its own."""
    spec = cluster.local._specs[f"frontend-{index}"].arguments
    port = spec[spec.index("--metrics-port") + 1]
    return samples(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text)


def group_metrics(cluster: Cluster) -> dict[tuple[str, ...], float]:
    return samples(httpx.get(f"{cluster.http_url}/metrics", timeout=10).text)


def samples(exposition: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


async def ask_all(cluster: Cluster) -> list[int]:
    """Ask over as many connections as there are requests; return the statuses."""
    body = {"model": cluster.model, "prompt": "a b", "max_tokens": 4, "temperature": 0}

    async def ask() -> int:
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
            url = f"{cluster.http_url}/v1/completions"
            return (await client.post(url, json=body)).status_code

    return await asyncio.gather(*(ask() for _ in range(NUM_CONNECTIONS)))


def differing_metrics(cluster: Cluster) -> list[tuple[tuple[str, ...], float, float]]:
    """Return (metric, value of the group, value expected from its processes) where they differ."""
    each = [own_metrics(cluster, index) for index in range(2)]
    whole = group_metrics(cluster)
    names = {key for one in each for key in one if key[0].startswith("pagewire_")}
    # The question itself is counted by the one that answers it.
    left_out = ("_created", "_in_flight")
    compared = [key for key in names if not key[0].endswith(left_out) and "/metrics" not in key]
    assert len(compared) > 50
    found = []
    for key in compared:
        values = [one.get(key, 0.0) for one in each]
        family = key[0].removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        expected = max(values) if {key[0], family} & GREATEST else sum(values)
        if whole[key] != pytest.approx(expected):
            found.append((key, whole[key], expected))
    return found


def test_connections_reach_both_and_the_metrics_are_the_sum(pair: Cluster) -> None:
    assert len(pair.processes["frontend"]) == 2
    assert Counter(asyncio.run(ask_all(pair))) == {200: NUM_CONNECTIONS}
    key = ("pagewire_requests_total", "/v1/completions", "http", "200")
    assert all(own_metrics(pair, index)[key] > 0 for index in range(2))
    assert group_metrics(pair)[key] == NUM_CONNECTIONS
    # The processes are asked one after the other, and a cell's numbers come once a second: what
    # arrives in between makes one round differ, but not every one of them.
    rounds = [differing_metrics(pair)]
    while rounds[-1] and len(rounds) < MAX_ROUNDS:
        time.sleep(1.0)
        rounds.append(differing_metrics(pair))
    assert rounds[-1] == [], rounds
    whole = group_metrics(pair)
    assert whole["pagewire_frontend_processes",] == 2


async def outcomes_of_a_kill(cluster: Cluster, requests: int) -> list[tuple[int, str]]:
    """Kill a frontend under streams, each over a connection of its own; return (number of tokens,
    error) of each."""
    body = {
        "model": cluster.model,
        "prompt": [5, 6, 7],
        "max_tokens": NUM_TOKENS,
        "stream": True,
        "temperature": 0,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }

    async def follow(client: httpx.AsyncClient) -> tuple[int, str]:
        lines: list[str] = []
        try:
            url = f"{cluster.http_url}/v1/completions"
            async with client.stream("POST", url, json=body) as answer:
                started.put_nowait(None)
                lines += [line async for line in answer.aiter_lines() if line]
        except httpx.TransportError as error:
            return 0, type(error).__name__
        assert lines[-1] == "data: [DONE]"
        usage = json.loads(lines[-2].removeprefix("data: "))["usage"]
        return usage["completion_tokens"], ""

    started: asyncio.Queue[None] = asyncio.Queue()
    clients = [httpx.AsyncClient(timeout=PATIENCE_SECONDS) for _ in range(requests)]
    tasks = [asyncio.create_task(follow(client)) for client in clients]
    for _ in tasks:
        await asyncio.wait_for(started.get(), PATIENCE_SECONDS)
    victim = cluster.processes["frontend"][0]
    os.kill(victim, signal.SIGKILL)
    outcomes = await asyncio.gather(*tasks)
    for client in clients:
        await client.aclose()
    return outcomes


def test_a_killed_frontend_takes_only_its_own_streams(pair: Cluster) -> None:
    before = pair.processes["frontend"]
    outcomes = asyncio.run(outcomes_of_a_kill(pair, 16))
    broken = [error for _, error in outcomes if error]
    whole = [count for count, error in outcomes if not error]
    assert set(whole) == {NUM_TOKENS}
    assert broken
    assert set(broken) <= {"ReadError", "RemoteProtocolError"}
    wait_until(
        lambda: len(pair.processes["frontend"]) == 2 and pair.processes["frontend"] != before,
        10,
        "a new frontend",
    )
    wait_until(lambda: group_metrics(pair)["pagewire_frontend_processes",] == 2, 30, "both back")
    assert Counter(asyncio.run(ask_all(pair))) == {200: NUM_CONNECTIONS}
    wait_until(
        lambda: own_metrics(pair, 0).get(("pagewire_generation_tokens_total", pair.model), 0) > 0,
        10,
        "the new one gets its share",
    )
    asyncio.run(eventually_clean(pair.grpc_address, num_workers=1))


def test_grpc_is_shared_too(pair: Cluster) -> None:
    before = [num_calls(pair, index) for index in range(2)]

    async def ask() -> None:
        # Each client has a connection of its own.
        async with AsyncClient(pair.grpc_address) as client:
            async for _ in client.complete([5, 6, 7], SamplingParams(max_tokens=4)):
                pass

    async def ask_often() -> None:
        await asyncio.gather(*(ask() for _ in range(32)))

    asyncio.run(ask_often())

    def grown() -> list[float]:
        return [num_calls(pair, index) - before[index] for index in range(2)]

    wait_until(lambda: sum(grown()) == 32, 10, "all counted")
    assert all(count > 0 for count in grown())


def num_calls(cluster: Cluster, index: int) -> float:
    """Return how many completions over gRPC a frontend has answered."""
    method = "/pagewire.frontend.v1.InferenceService/Complete"
    return own_metrics(cluster, index).get(("pagewire_requests_total", method, "grpc", "OK"), 0.0)


@pytest.mark.parametrize("field", ["port", "grpc_port"])
def test_a_port_of_another_program_is_refused(
    field: str, tiny_checkpoint: Path, taken_port: int
) -> None:
    ports = {"port": free_port(), "grpc_port": free_port(), field: taken_port}
    settings = {**TINY, **ports, "model": (str(tiny_checkpoint),), "frontends": 2}
    local = LocalCluster(config_from_keywords(settings, {}).config)
    flag = "--" + field.replace("_", "-")
    with pytest.raises(StartupError, match=f"{flag}: cannot listen on .*{taken_port}"):
        local.start()
    assert local.pids() == {}
    local.stop()


def test_ports_picked_by_the_system_are_the_same_for_all_and_ctrl_c_leaves_nothing(
    tiny_checkpoint: Path,
) -> None:
    flags = ["--model", str(tiny_checkpoint), "--frontends", "3", "--port", "0", "--grpc-port", "0"]
    with Serve(*flags, "--dtype", "float32", "--kv-cache-memory", "16MiB") as serve:
        url = serve.wait_ready().split("is ready after")[1].split(": ")[1].split()[0]
        assert not url.endswith(":0")
        pids = children_of(serve.process.pid)
        pids += [grandchild for pid in pids for grandchild in children_of(pid)]
        assert len(pids) >= 6
        text = httpx.get(f"{url}/metrics", timeout=10).text
        assert samples(text)["pagewire_frontend_processes",] == 3
        serve.process.send_signal(signal.SIGINT)
        assert serve.finish(30) == 0
    assert [pid for pid in pids if is_running(pid)] == []
