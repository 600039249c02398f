"""Grammars, penalties, choices and log-probabilities over the death of a process, and over giving
way to others: what comes is what comes undisturbed, each part once."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire import AsyncClient, RequestOutput
from pagewire_protos.common.v1 import audit_pb2
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import audit, completion, eventually_clean, follow_all
from support.traffic.survivors import PARAMS, PROMPTS, Follower, assert_equal, start, until_grown

NAMES = ("guided", "choices", "rules")
NUM_WORKERS = 2
PATIENCE_SECONDS = 60.0
# 640 tokens of KV cache: 4 layers, 2 KV heads of 64, keys and values in float32.
SMALL_POOL = 640 * 4 * 2 * 64 * 2 * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for a stream to last a second or more."""
    folder = tmp_path_factory.mktemp("survival") / "model"
    return make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)


@pytest.fixture(scope="module")
def pair(folder: Path) -> Iterator[Cluster]:
    cluster = start_cluster(
        folder, num_workers=NUM_WORKERS, max_model_len=600, kv_cache_memory="64MiB"
    )
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def undisturbed(pair: Cluster) -> dict[str, RequestOutput]:
    """What comes of each alone."""

    async def run() -> list[Follower]:
        async with AsyncClient(pair.grpc_address) as client:
            alone = []
            for name in NAMES:
                [follower], task = start(client, [name])
                await asyncio.wait_for(task, PATIENCE_SECONDS)
                alone.append(follower)
            return alone

    outputs = {one.name: one.output for one in asyncio.run(run()) if one.output is not None}
    codes = outputs["guided"].outputs[0]
    assert codes.finish_reason == "stop"
    assert all(re.fullmatch("[a-f]{6}-[0-9]{4}", code) for code in json.loads(codes.text))
    assert len(codes.token_ids) > 100
    assert len({choice.text for choice in outputs["choices"].outputs}) == 4
    return outputs


def running(report: audit_pb2.AuditReport) -> dict[str, int]:
    """Return how many sequences each worker runs."""
    return {pool.worker: pool.num_slots for pool in report.scheduler.pools}


async def with_two_workers_killed(cluster: Cluster) -> list[Follower]:
    """Kill one worker, and then the other, to which everything has moved by then."""
    first, second = cluster.processes["worker"]
    async with AsyncClient(cluster.grpc_address) as client:
        followers, task = start(client, NAMES)
        await until_grown(followers, 24, PATIENCE_SECONDS)
        os.kill(first, signal.SIGKILL)
        await asyncio.sleep(0.05)
        await until_grown(followers, 24, PATIENCE_SECONDS)
        assert not task.done()
        # Whatever still runs, runs there: the place of the first is not taken yet, or is empty.
        # The choices may have ended by now: they need fewer steps than the guided request.
        left = running(await audit(cluster.grpc_address))
        assert len([number for number in left.values() if number]) == 1
        os.kill(second, signal.SIGKILL)
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    return followers


async def with_scheduler_killed(cluster: Cluster) -> list[Follower]:
    async with AsyncClient(cluster.grpc_address) as client:
        followers, task = start(client, NAMES)
        await until_grown(followers, 40, PATIENCE_SECONDS)
        assert not any(one.output for one in followers)
        os.kill(cluster.processes["scheduler"][0], signal.SIGKILL)
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    assert all(one.num_resumes >= 1 for one in followers)
    return followers


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_requests_outlive_processes(
    pair: Cluster, undisturbed: dict[str, RequestOutput], role: str
) -> None:
    asyncio.run(eventually_clean(pair.grpc_address, NUM_WORKERS, PATIENCE_SECONDS))
    disturbed = with_two_workers_killed if role == "worker" else with_scheduler_killed
    for follower in asyncio.run(disturbed(pair)):
        assert_equal(follower, undisturbed[follower.name])
    asyncio.run(eventually_clean(pair.grpc_address, NUM_WORKERS, PATIENCE_SECONDS))


@pytest.fixture(scope="module")
def narrow(folder: Path) -> Iterator[Cluster]:
    """One worker with room for two or three sequences, that reads 16 tokens at a time."""
    cluster = start_cluster(
        folder,
        max_model_len=600,
        kv_cache_memory=SMALL_POOL,
        max_num_seqs=8,
        max_num_batched_tokens=16,
    )
    yield cluster
    cluster.local.stop()


async def with_competitors(cluster: Cluster, name: str) -> Follower:
    """Run a request, and in the middle of it others that come before it and fill the pool."""
    urgent = [completion(cluster.model, [20 + number] * 220, 60) for number in range(3)]
    for request in urgent:
        request.options.priority = -10
    async with AsyncClient(cluster.grpc_address) as client:
        [follower], task = start(client, [name])
        await until_grown([follower], 24, PATIENCE_SECONDS)
        before = (await audit(cluster.grpc_address)).scheduler
        assert (before.num_running, before.num_waiting) == (PARAMS[name].n, 0)
        others = asyncio.create_task(follow_all(cluster.grpc_address, urgent))
        now = before
        while now.num_preemptions == before.num_preemptions:
            # The youngest gives way first, and that is ours as long as it runs.
            assert not task.done(), "it was never in the way"
            now = (await audit(cluster.grpc_address)).scheduler
        await asyncio.wait_for(task, PATIENCE_SECONDS)
        assert [stream.error for stream in await others] == [""] * 3
    return follower


@pytest.mark.parametrize("name", NAMES)
def test_requests_outlive_preemption(
    narrow: Cluster, undisturbed: dict[str, RequestOutput], name: str
) -> None:
    assert_equal(asyncio.run(with_competitors(narrow, name)), undisturbed[name])
    asyncio.run(eventually_clean(narrow.grpc_address, 1, PATIENCE_SECONDS))


async def with_worker_killed_while_it_reads(cluster: Cluster) -> Follower:
    """Kill the only worker when it has told a part of the prompt, which is then told again."""
    [worker] = cluster.processes["worker"]
    num_prompt = len(PROMPTS["prompt"])
    async with AsyncClient(cluster.grpc_address) as client:
        [pool] = (await audit(cluster.grpc_address)).scheduler.pools
        begin = pool.num_computed_tokens
        [follower], task = start(client, ["prompt"])
        while pool.num_computed_tokens < begin + 100:
            [pool] = (await audit(cluster.grpc_address)).scheduler.pools
        os.kill(worker, signal.SIGKILL)
        assert pool.num_computed_tokens < begin + num_prompt, "it had read everything"
        assert follower.num_tokens == 0
        await asyncio.wait_for(task, PATIENCE_SECONDS)
    return follower


def test_a_prompt_is_told_once_though_it_is_read_twice(narrow: Cluster) -> None:
    async def calm() -> Follower:
        async with AsyncClient(narrow.grpc_address) as client:
            [follower], task = start(client, ["prompt"])
            await asyncio.wait_for(task, PATIENCE_SECONDS)
        return follower

    follower = asyncio.run(with_worker_killed_while_it_reads(narrow))
    undisturbed = asyncio.run(calm()).output
    assert undisturbed is not None
    assert_equal(follower, undisturbed)
    asyncio.run(eventually_clean(narrow.grpc_address, 1, PATIENCE_SECONDS))
