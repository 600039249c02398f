"""Three times more than the cell takes: what was accepted ends well, the rest is told when to come
again, and memory stays where it was."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import eventually_clean

MAX_NUM_SEQS = 8
MAX_NUM_WAITING = 24
NUM_CLIENTS = 3 * (MAX_NUM_SEQS + MAX_NUM_WAITING)
NUM_TOKENS = 100
MIB = 2**20


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = make_checkpoint(tmp_path_factory.mktemp("overload") / "model", hidden=128, layers=3)
    cluster = start_cluster(
        folder,
        dtype="float32",
        max_num_seqs=MAX_NUM_SEQS,
        max_num_waiting=MAX_NUM_WAITING,
        max_model_len=400,
    )
    yield cluster
    cluster.local.stop()


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def ask(client: httpx.AsyncClient, url: str, number: int) -> httpx.Response:
    body = {
        "prompt": [number % 500 + 3] * 100,
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": number % 2 == 0,
    }
    return await client.post(f"{url}/v1/completions", json=body)


async def storm(url: str) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=NUM_CLIENTS)
    async with httpx.AsyncClient(timeout=120.0, limits=limits) as client:
        asked = [ask(client, url, number) for number in range(NUM_CLIENTS)]
        return list(await asyncio.gather(*asked))


def test_overload(small: Cluster) -> None:
    pids = [pid for role in ("frontend", "scheduler") for pid in small.processes[role]]
    asyncio.run(storm(small.http_url))
    before = [memory_of(pid) for pid in pids]
    for _ in range(2):
        responses = asyncio.run(storm(small.http_url))
        accepted = [one for one in responses if one.status_code == 200]
        refused = [one for one in responses if one.status_code == 429]
        assert len(accepted) + len(refused) == NUM_CLIENTS
        assert len(accepted) >= MAX_NUM_WAITING
        assert refused, "nothing was refused: this is no overload"
        for one in accepted:
            if one.headers["content-type"].startswith("text/event-stream"):
                assert one.text.rstrip().endswith("data: [DONE]")
                assert '"finish_reason":"length"' in one.text.replace(" ", "")
            else:
                assert one.json()["usage"]["completion_tokens"] == NUM_TOKENS
        for one in refused:
            assert int(one.headers["retry-after"]) >= 1
            assert one.json()["error"]["code"] == "rate_limit_exceeded"
    after = [memory_of(pid) for pid in pids]
    assert max(now - then for now, then in zip(after, before, strict=True)) < 32 * MIB
    asyncio.run(eventually_clean(small.grpc_address, 1))
