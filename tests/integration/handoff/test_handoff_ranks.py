"""Prompts that one group of ranks computes and another one goes on with: the answers are those of
a single group, also with ranks killed, and a self-test finds equal blocks in groups of any form."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pagewire.cli import main
from pagewire.client.topology_client import topology
from support.cells.clusters import Cluster, start_cluster
from support.cells.more_workers import MoreWorker
from support.cells.worker_flags import with_worker_flags
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import children_of
from support.traffic.mixed_requests import Answer, ask_mixed, assert_equal, make_requests
from support.traffic.streams import eventually_clean

pytestmark = [needs_kernels, pytest.mark.long, pytest.mark.timeout(300)]

REQUESTS = make_requests(120, seed=11)
PATIENCE_SECONDS = 60.0
NUM_KILLS = 3


@pytest.fixture(scope="module")
def of_one_group(tiny_checkpoint: Path) -> list[Answer]:
    """What comes where one group does everything."""
    single = start_cluster(tiny_checkpoint, tensor_parallel_size=2, kv_offload="off")
    try:
        return asyncio.run(ask_mixed(single, REQUESTS))
    finally:
        single.local.stop()


@pytest.fixture(scope="module")
def apart(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """A group for prompts and one for tokens."""
    cluster = start_cluster(
        tiny_checkpoint,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        tensor_parallel_size=2,
        kv_offload="off",
    )
    yield cluster
    cluster.local.stop()


def self_test(cluster: Cluster, num_pairs: int, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["admin", "selftest", "--server", cluster.grpc_address])
    shown = capsys.readouterr().out
    assert status == 0, shown
    lines = shown.splitlines()
    assert [line.split()[-1] for line in lines[2:-1]] == ["equal"] * num_pairs, shown


def hand_offs(answers: Sequence[Answer]) -> list[bool]:
    """Return whether each prompt was handed off that is new, where its answer says so."""
    return [
        answer.timelines[0]["is_handed_off"]
        for request, answer in zip(REQUESTS, answers, strict=False)
        if request.is_fresh and answer.timelines
    ]


def test_the_answers_are_those_of_one_group(
    apart: Cluster, of_one_group: Sequence[Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    self_test(apart, 1, capsys)
    answers = asyncio.run(ask_mixed(apart, REQUESTS))
    assert_equal(REQUESTS, answers, of_one_group)
    # On a busy machine some may be given up; most must not.
    told = hand_offs(answers)
    assert sum(told) > len(told) / 2 > 10
    asyncio.run(eventually_clean(apart.grpc_address, 2, PATIENCE_SECONDS))


def test_ranks_are_killed_while_blocks_move(apart: Cluster, of_one_group: Sequence[Answer]) -> None:
    dice = random.Random(4)

    async def kill_some() -> None:
        for _ in range(NUM_KILLS):
            await asyncio.sleep(dice.uniform(0.1, 0.4))
            workers = list(apart.local.pids("worker").values())
            ranks = [rank for worker in workers for rank in children_of(worker)]
            if ranks:
                os.kill(dice.choice(ranks), signal.SIGKILL)

    async def run() -> list[Answer]:
        answers, _ = await asyncio.gather(ask_mixed(apart, REQUESTS), kill_some())
        return answers

    assert_equal(REQUESTS, asyncio.run(run()), of_one_group)
    asyncio.run(eventually_clean(apart.grpc_address, 2, PATIENCE_SECONDS))


def test_stages_and_single_processes_are_pairs(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = start_cluster(
        tiny_checkpoint,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        pipeline_parallel_size=2,
        kv_offload="off",
    )
    flags = {"pipeline_parallel_size": "1", "roles": "prefill"}
    try:
        with MoreWorker(cluster, tmp_path, **flags) as single:
            single.wait_ready()
            # From two stages, and from a single process.
            self_test(cluster, 2, capsys)
            answers = asyncio.run(ask_mixed(cluster, REQUESTS[:40]))
            [cell] = asyncio.run(topology(cluster.grpc_address))
            assert any(pair.num_transfers for pair in cell.pairs)
        whole = start_cluster(tiny_checkpoint, kv_offload="off")
        try:
            assert_equal(REQUESTS[:40], answers, asyncio.run(ask_mixed(whole, REQUESTS[:40])))
        finally:
            whole.local.stop()
    finally:
        cluster.local.stop()


@pytest.fixture(scope="module")
def of_one_rank(tiny_checkpoint: Path) -> list[Answer]:
    """What one process answers whose sums have the slices of two ranks."""
    single = start_cluster(tiny_checkpoint, sum_slices=2, kv_offload="off")
    try:
        return asyncio.run(ask_mixed(single, REQUESTS[:60]))
    finally:
        single.local.stop()


@pytest.mark.parametrize("divided", ["worker-0", "worker-1"], ids=["prompts", "tokens"])
def test_with_sliced_sums_one_and_two_ranks_are_a_pair(
    tiny_checkpoint: Path,
    of_one_rank: Sequence[Answer],
    divided: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = start_cluster(
        tiny_checkpoint,
        prefill_workers=1,
        decode_workers=1,
        handoff="always",
        sum_slices=2,
        kv_offload="off",
        before_start=with_worker_flags("--tensor-parallel-size", "2", only=divided),
    )
    try:
        self_test(cluster, 1, capsys)
        answers = asyncio.run(ask_mixed(cluster, REQUESTS[:60]))
        assert_equal(REQUESTS[:60], answers, of_one_rank)
        assert any(hand_offs(answers))
        asyncio.run(eventually_clean(cluster.grpc_address, 2, PATIENCE_SECONDS))
    finally:
        cluster.local.stop()
