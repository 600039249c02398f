"""A cell with a KV store beside it, and what its answers say of where their prefixes came from.

Blocks of the tiny checkpoint are 8 KiB: 2 layers, keys and values, 2 heads of 16, 16 tokens.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio

from pagewire_kvstore.tiers.record_codec import decode_record
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.processes.kv_stores import KvStore
from support.processes.processes import wait_until
from support.traffic.streams import audit, completion, eventually_clean

BLOCK_SIZE = 16
BLOCK_BYTES = 2 * 2 * 2 * 16 * 16 * 4
NUM_TOKENS = 16
ROOMY = "16MiB"
"""Memory of a store with room for all that a test puts."""
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request.

    Attributes:
        token_ids: All of it.
        cached: Tokens of the prompt that were not computed, by where they were found.
    """

    token_ids: list[int]
    cached: dict[str, int] = field(default_factory=dict)

    @property
    def num_loaded(self) -> int:
        """Tokens that came from a store."""
        return sum(count for tier, count in self.cached.items() if tier != "worker")


def prompt_of(number: int, num_tokens: int, end: int = 0) -> list[int]:
    """Return a prompt; those of one `number` are equal but for their last five tokens."""
    begin = [3 + (number * 37 + (7 + number) * step) % 490 for step in range(num_tokens - 5)]
    return begin + [3 + (end * 11 + step) % 490 for step in range(5)]


async def ask_all(
    cluster: Cluster,
    prompts: Sequence[Sequence[int]],
    *,
    tenant: str | None = None,
    num_tokens: int = NUM_TOKENS,
) -> list[Answer]:
    """Send requests at once and return what came of each. Raises AioRpcError where one failed."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        calls = []
        for prompt in prompts:
            request = completion(cluster.model, prompt, num_tokens)
            if tenant is not None:
                request.options.tenant = tenant
            calls.append(_follow(stub, request, num_tokens))
        return await asyncio.gather(*calls)


async def _follow(
    stub: "inference_pb2_grpc.InferenceServiceAsyncStub",
    request: inference_pb2.CompleteRequest,
    num_tokens: int,
) -> Answer:
    token_ids: list[int] = []
    usage = inference_pb2.Usage()
    async for response in stub.Complete(request, timeout=PATIENCE_SECONDS):
        token_ids.extend(response.delta.token_ids)
        if response.HasField("closed"):
            usage = response.closed.usage
    by_tier = {entry.tier: entry.num_tokens for entry in usage.cached_tokens_by_tier}
    assert sum(by_tier.values()) == usage.cached_tokens
    assert len(token_ids) == num_tokens
    return Answer(token_ids, by_tier)


def ask(cluster: Cluster, prompt: Sequence[int], tenant: str | None = None) -> Answer:
    """Send one request and wait for its answer."""
    return asyncio.run(ask_all(cluster, [prompt], tenant=tenant))[0]


def replace_worker(cluster: Cluster) -> None:
    """kill -9 the worker; return when a fresh one is attached in its place."""
    old = cluster.local.pids("worker")

    def is_replaced() -> bool:
        report = asyncio.run(audit(cluster.grpc_address))
        return cluster.local.pids("worker") != old and len(report.scheduler.pools) == 1

    for pid in old.values():
        os.kill(pid, signal.SIGKILL)
    wait_until(is_replaced, PATIENCE_SECONDS, "a fresh worker is attached")


@contextmanager
def running(checkpoint: Path, *stores: str, **settings: Any) -> Iterator[Cluster]:
    """Yield a cluster that uses the stores at these addresses; its audit is clean at the end."""
    settings = {"block_size": BLOCK_SIZE, "max_model_len": 512, **settings}
    cluster = start_cluster(checkpoint, kvstore=stores, **settings)
    try:
        yield cluster
        num_workers = settings.get("num_workers", 1)
        asyncio.run(eventually_clean(cluster.grpc_address, num_workers, PATIENCE_SECONDS))
    finally:
        cluster.local.stop()


def disk_flags(folder: Path, *, memory: str = "256KiB", disk: str = "64MiB") -> tuple[str, ...]:
    """Return flags of a store with memory and a disk tier in `folder`."""
    return ("--memory-size", memory, "--disk-path", str(folder), "--disk-size", disk)


def restart(store: KvStore) -> None:
    """kill -9 the store and start it on what it left."""
    store.kill()
    store.start()


def check_files(folder: Path) -> int:
    """Check that every block's file is a whole, right record; return how many there are."""
    files = [path for path in (folder / "blocks").rglob("*") if path.is_file()]
    for path in files:
        decode_record(path.read_bytes())
    return len(files)
