"""256 streams at once, and 64 clients beside them that read a byte a second: every stream is whole,
and what the slow ones leave does not pile up."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import eventually_clean

NUM_STREAMS = 256
NUM_SLOW = 64
NUM_TOKENS = 48
SLOW_TOKENS = 400
MIB = 2**20


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = make_checkpoint(tmp_path_factory.mktemp("many") / "model", hidden=64, layers=1)
    cluster = start_cluster(
        folder,
        max_num_seqs=NUM_STREAMS + NUM_SLOW,
        max_num_batched_tokens=1024,
        max_model_len=512,
        kv_cache_memory="64MiB",
    )
    yield cluster
    cluster.local.stop()


def request(number: int, num_tokens: int, **options: object) -> bytes:
    body = {
        "prompt": [number % 500 + 3] * 20,
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        **options,
    }
    data = json.dumps(body).encode()
    head = (
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + data


async def whole_stream(port: int, number: int) -> tuple[str, int]:
    """Return the end of a stream and how many of its tokens it told of."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request(number, NUM_TOKENS, return_token_ids=True))
    data = (await reader.read()).decode()
    writer.close()
    num_tokens = 0
    for line in data.splitlines():
        if line.startswith("data: {"):
            value = json.loads(line.removeprefix("data: "))
            assert "error" not in value
            num_tokens += sum(len(choice["token_ids"]) for choice in value["choices"])
    return data[-40:], num_tokens


async def slow_stream(port: int, is_over: asyncio.Event) -> None:
    """Ask for an answer that is long in bytes, and take one a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    writer.write(request(7, SLOW_TOKENS, logprobs=20))
    while not is_over.is_set():
        assert await reader.read(1)
        await asyncio.sleep(1)
    writer.transport.abort()


async def crowd(port: int) -> list[tuple[str, int]]:
    is_over = asyncio.Event()
    slow = [asyncio.create_task(slow_stream(port, is_over)) for _ in range(NUM_SLOW)]
    fast = [asyncio.create_task(whole_stream(port, number)) for number in range(NUM_STREAMS)]
    ends = await asyncio.gather(*fast)
    is_over.set()
    await asyncio.gather(*slow)
    return ends


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_every_stream_is_whole_beside_slow_ones(wide: Cluster) -> None:
    port = int(wide.http_url.rpartition(":")[2])
    [frontend] = wide.processes["frontend"]
    after = []
    for _ in range(4):
        for end, num_tokens in asyncio.run(crowd(port)):
            assert end.endswith("data: [DONE]\n\n\r\n0\r\n\r\n")
            assert num_tokens == NUM_TOKENS
        after.append(memory_of(frontend))
    # Two rounds fill caches and pools: 14 rounds ended at what the second had, +-15 MiB. What stays
    # after them must not grow with the rounds.
    assert after[-1] - after[1] < 48 * MIB, after
    asyncio.run(eventually_clean(wide.grpc_address, 1))
