"""Blocks outlive the worker that computed them, the store's process and its memory: real
processes, a real Redis, real files, and the same greedy tokens in float32."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagewire.cli.live.overview import overview
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import BLOCK_SIZE, Answer, ask, replace_worker
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import KvStore, RedisServer, wait_for_blocks
from support.processes.processes import wait_until

NUM_BLOCKS = 8
PROMPT = [3 + (7 * step) % 490 for step in range(NUM_BLOCKS * BLOCK_SIZE + 5)]


@dataclass(frozen=True, slots=True)
class Deployment:
    """One cell with its store and Redis."""

    cluster: Cluster
    store: KvStore
    redis: RedisServer
    folder: Path

    def flags(self, *, disk: str = "disk") -> tuple[str, ...]:
        return (
            *("--memory-size", "8MiB", "--disk-path", str(self.folder / disk)),
            *("--disk-size", "64MiB", "--redis", self.redis.url),
        )


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("kvstore") / "model", hidden=64, layers=2)


@pytest.fixture
def deployment(checkpoint: Path, tmp_path: Path) -> Iterator[Deployment]:
    with RedisServer(tmp_path) as redis:
        flags = ("--memory-size", "8MiB", "--redis", redis.url)
        flags = (*flags, "--disk-path", str(tmp_path / "disk"), "--disk-size", "64MiB")
        with KvStore(tmp_path, *flags) as store:
            keys = tmp_path / "keys"
            keys.write_text("4f" * 32)
            cluster = start_cluster(
                checkpoint,
                kvstore=(store.address,),
                block_size=BLOCK_SIZE,
                kv_key_file=str(keys),
            )
            try:
                yield Deployment(cluster, store, redis, tmp_path)
            finally:
                cluster.local.stop()


def ask_until(cluster: Cluster, tier: str) -> Answer:
    """Ask until the scheduler knows what a store has that has just been started."""

    def is_loaded() -> Answer | None:
        answer = ask(cluster, PROMPT)
        if tier in answer.cached:
            return answer
        # It was computed; what the worker has of it now must not be found.
        replace_worker(cluster)
        return None

    answer = wait_until(is_loaded, 60, f"blocks come from {tier}")
    assert answer is not None
    return answer


def test_blocks_outlive_the_worker_and_every_tier_above(deployment: Deployment) -> None:
    cluster, store = deployment.cluster, deployment.store
    loaded = NUM_BLOCKS * BLOCK_SIZE
    first = ask(cluster, PROMPT)
    assert first.cached == {}
    for tier in ("memory", "disk", "redis"):
        wait_for_blocks(store.address, NUM_BLOCKS, tier)

    replace_worker(cluster)
    assert ask(cluster, PROMPT) == Answer(first.token_ids, {"memory": loaded})
    (seen,) = asyncio.run(overview(cluster.grpc_address))
    places = {(one.tier, one.store): one for one in seen.tiers}
    for tier in ("memory", "disk", "redis"):
        assert places[tier, store.address].num_blocks >= NUM_BLOCKS
    assert places["worker", ""].num_blocks >= NUM_BLOCKS
    assert [model.found_tokens["memory"] for model in seen.models] == [loaded]
    # What it loaded is its own now.
    assert ask(cluster, PROMPT) == Answer(first.token_ids, {"worker": loaded})

    store.kill()
    store.start()
    replace_worker(cluster)
    assert ask_until(cluster, "disk") == Answer(first.token_ids, {"disk": loaded})

    store.kill()
    store.start(deployment.flags(disk="another"))
    replace_worker(cluster)
    assert ask_until(cluster, "redis") == Answer(first.token_ids, {"redis": loaded})
