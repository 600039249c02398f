"""Blocks that go to the store only when their sequence lets go of them; and what every process of a
cell is started with so that blocks move fast."""

import asyncio
from pathlib import Path

import grpc.aio

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import Cluster
from support.cells.kv_cells import (
    BLOCK_BYTES,
    ROOMY,
    Answer,
    ask,
    ask_all,
    prompt_of,
    replace_worker,
    running,
)
from support.processes.kv_stores import KvStore, tier_stats, wait_for_blocks
from support.traffic.streams import audit, completion

NUM_TOKENS = 120
LONG = [prompt_of(number, 45) for number in range(6)]
# Half of what the six need at their end.
POOL_BYTES = 30 * BLOCK_BYTES
ALLOCATOR = "MALLOC_MMAP_THRESHOLD_"


async def num_stored_while_it_runs(cluster: Cluster, store: KvStore) -> int:
    """Run a request and return what the store holds of it shortly before its end."""
    stored = -1
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        num_tokens = 0
        async for response in stub.Complete(completion(cluster.model, prompt_of(9, 133), 300)):
            num_tokens += len(response.delta.token_ids)
            if stored < 0 and num_tokens > 150:
                stored = (await tier_stats(store.address))["memory"].num_blocks
                assert num_tokens < 300
    return stored


def test_blocks_go_out_when_their_sequence_ends(tiny_checkpoint: Path, tmp_path: Path) -> None:
    settings = {"kv_offload": "writeback", "kv_load": "always"}
    with (
        KvStore(tmp_path, "--memory-size", ROOMY) as store,
        running(tiny_checkpoint, store.address, **settings) as cluster,
    ):
        assert asyncio.run(num_stored_while_it_runs(cluster, store)) == 0
        wait_for_blocks(store.address, 433 // 16 - 1)
        replace_worker(cluster)
        assert ask(cluster, prompt_of(9, 133)).cached == {"memory": 128}


def test_preempted_work_is_put_aside_and_fetched(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with running(tiny_checkpoint, kv_offload="off") as cluster:
        expected = asyncio.run(ask_all(cluster, LONG, num_tokens=NUM_TOKENS))
    settings = {"kv_offload": "writeback", "kv_load": "always", "kv_cache_memory": POOL_BYTES}
    with (
        KvStore(tmp_path, "--memory-size", ROOMY) as store,
        running(tiny_checkpoint, store.address, **settings, max_model_len=256) as cluster,
    ):
        answers = asyncio.run(ask_all(cluster, LONG, num_tokens=NUM_TOKENS))
        assert answers == [Answer(answer.token_ids) for answer in expected]
        assert asyncio.run(audit(cluster.grpc_address)).scheduler.num_preemptions > 0
        # No prompt begins as another does, so whatever was loaded is of work put aside.
        assert asyncio.run(tier_stats(store.address))["memory"].num_hits > 0


def test_processes_that_move_blocks_have_the_allocator_for_it(cluster: Cluster) -> None:
    has_settings = {
        role: {ALLOCATOR in Path(f"/proc/{pid}/environ").read_text() for pid in pids}
        for role, pids in cluster.processes.items()
    }
    assert has_settings == {
        "frontend": {False},
        "scheduler": {False},
        "worker": {True},
        "kvstore": {True},
    }
