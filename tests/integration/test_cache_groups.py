"""A model of which some layers have a window: its tokens are those of one cache group that keeps
everything, and a sequence keeps no more blocks of a windowed group than the window has."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from pagewire_protos.common.v1 import audit_pb2
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import BLOCK_SIZE, ask, prompt_of, replace_worker, running
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import KvStore, wait_for_blocks
from support.processes.processes import wait_until
from support.traffic.mixed_requests import Answer, Mixed, ask_mixed, assert_equal, make_requests
from support.traffic.streams import audit, completion, eventually_clean, follow_all

WINDOW = 40
WINDOW_BLOCKS = -(-WINDOW // BLOCK_SIZE) + 2
PROMPT = prompt_of(1, 10 * BLOCK_SIZE + 5)
NUM_REQUESTS = 28
NUM_LONG = 8
TIGHT = 320 * 1024
"""80 blocks of 4 KiB: one layer, keys and values of 2 heads of 16, 16 tokens."""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer reads all positions and two have a window: three groups of one layer."""
    return make_checkpoint(
        tmp_path_factory.mktemp("groups") / "model",
        architecture="Qwen2ForCausalLM",
        layers=3,
        config={"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    )


@pytest.fixture(scope="module")
def requests() -> list[Mixed]:
    """Some generate so much that a tight pool does not hold those that it starts with."""
    fields = {"temperature": 0.0, "max_tokens": 120, "ignore_eos": True}
    long = [Mixed("grpc", "greedy", prompt_of(n, 20), True, fields) for n in range(NUM_LONG)]
    return make_requests(NUM_REQUESTS - NUM_LONG, seed=1) + long


@pytest.fixture(scope="module")
def of_one_group(checkpoint: Path, requests: Sequence[Mixed]) -> list[Answer]:
    """What transformers computes, over a cache that keeps all positions of all layers."""
    cluster = start_cluster(checkpoint, model_impl="transformers", kv_offload="off")
    try:
        answers = asyncio.run(ask_mixed(cluster, requests))
        assert [group.window for group in pool_of(cluster).groups] == [0]
        return answers
    finally:
        cluster.local.stop()


def pool_of(cluster: Cluster) -> audit_pb2.PoolAudit:
    report = asyncio.run(audit(cluster.grpc_address))
    [pool] = report.scheduler.pools
    return pool


def test_a_tight_pool_gives_the_tokens_of_one_group(
    checkpoint: Path, requests: Sequence[Mixed], of_one_group: Sequence[Answer]
) -> None:
    with running(checkpoint, kv_offload="off", kv_cache_memory=TIGHT) as cluster:
        answers = asyncio.run(ask_mixed(cluster, requests))
        report = asyncio.run(audit(cluster.grpc_address))
    assert_equal(requests, answers, of_one_group)
    assert report.scheduler.num_preemptions > 0


def test_a_sequence_keeps_the_blocks_of_its_windows(checkpoint: Path) -> None:
    with running(checkpoint, kv_offload="off") as cluster:
        held = asyncio.run(_held_while_generating(cluster))
    full, *windowed = held
    assert [group.window for group in held] == [0, WINDOW, WINDOW]
    assert full.most_held > len(PROMPT) // BLOCK_SIZE
    assert all(0 < group.most_held <= WINDOW_BLOCKS for group in windowed)


async def _held_while_generating(cluster: Cluster) -> Sequence[audit_pb2.GroupAudit]:
    """The blocks held by a sequence that has computed its prompt."""
    asked = [completion(cluster.model, PROMPT, 300)]
    following = asyncio.create_task(follow_all(cluster.grpc_address, asked))
    held: Sequence[audit_pb2.GroupAudit] = ()
    while not following.done():
        report = await audit(cluster.grpc_address)
        [pool] = report.scheduler.pools
        if pool.groups[0].most_held > -(-len(PROMPT) // BLOCK_SIZE):
            held = pool.groups
    [stream] = await following
    assert not stream.error
    return held


def test_blocks_of_all_groups_outlive_a_worker(checkpoint: Path, tmp_path: Path) -> None:
    with (
        KvStore(tmp_path, "--memory-size", "16MiB") as store,
        running(checkpoint, store.address, kv_load="always") as cluster,
    ):
        first = ask(cluster, PROMPT)
        assert first.cached == {}
        wait_for_blocks(store.address, 3 * (len(PROMPT) // BLOCK_SIZE))
        replace_worker(cluster)
        second = ask(cluster, PROMPT)
        assert second.token_ids == first.token_ids
        assert second.cached == {"memory": len(PROMPT) // BLOCK_SIZE * BLOCK_SIZE}
        # Of the windowed groups it has loaded what the next token reads.
        assert pool_of(cluster).num_cached < 3 * (len(PROMPT) // BLOCK_SIZE)


def test_hand_offs_and_a_killed_worker_give_the_tokens_of_one_group(
    checkpoint: Path, requests: Sequence[Mixed], of_one_group: Sequence[Answer]
) -> None:
    cluster = start_cluster(
        checkpoint, prefill_workers=1, decode_workers=1, handoff="always", block_size=BLOCK_SIZE
    )
    num_answers = 0

    def kill_a_worker() -> None:
        nonlocal num_answers
        num_answers += 1
        if num_answers == NUM_REQUESTS // 2:
            os.kill(max(cluster.local.pids("worker").values()), signal.SIGKILL)

    try:
        answers = asyncio.run(ask_mixed(cluster, requests, on_answer=kill_a_worker))
        assert_equal(requests, answers, of_one_group)
        lines = [line for answer in answers for line in answer.timelines]
        assert any(line["is_handed_off"] and line["transfer_bytes"] > 0 for line in lines)
        wait_until(lambda: len(cluster.local.pids("worker")) == 2, 60, "both workers are back")
        asyncio.run(eventually_clean(cluster.grpc_address, 2, 60.0))
    finally:
        cluster.local.stop()
