"""Blocks of ranks outlive their group: it finds them again, stages and a single process share them,
and a rank that is killed while blocks are put and loaded leaves no half of one."""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from support.cells.kv_cells import (
    BLOCK_BYTES,
    BLOCK_SIZE,
    Answer,
    ask,
    check_files,
    disk_flags,
    prompt_of,
    replace_worker,
    running,
)
from support.kernels.fused_kernels import needs_kernels
from support.processes.kv_stores import KvStore, wait_for_blocks
from support.processes.processes import children_of, wait_until
from support.products import WHOLE
from support.traffic.kv_waves import make_waves
from support.traffic.streams import audit

pytestmark = needs_kernels

NUM_BLOCKS = 8
LOADED = {"memory": NUM_BLOCKS * BLOCK_SIZE}
MEMORY = ("--memory-size", "8MiB")


def prompts(number: int) -> list[int]:
    return prompt_of(number, NUM_BLOCKS * BLOCK_SIZE + 5)


def test_a_group_that_is_started_again_finds_its_blocks(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with (
        KvStore(tmp_path, *MEMORY) as store,
        running(tiny_checkpoint, store.address, tensor_parallel_size=2) as cluster,
    ):
        first = ask(cluster, prompts(1))
        assert first.cached == {}
        wait_for_blocks(store.address, NUM_BLOCKS)
        replace_worker(cluster)
        assert ask(cluster, prompts(1)) == Answer(first.token_ids, LOADED)
        assert ask(cluster, prompts(1)).cached == {"worker": LOADED["memory"]}


@pytest.mark.long
def test_stages_and_a_single_process_share_blocks(tiny_checkpoint: Path, tmp_path: Path) -> None:
    with KvStore(tmp_path, *MEMORY) as store:
        answers: list[Answer] = []
        for turn, num_stages in enumerate((2, 1, 2)):
            with running(
                tiny_checkpoint, store.address, pipeline_parallel_size=num_stages, kv_load="always"
            ) as cluster:
                # Those before were computed by as many processes as this time there are not.
                for number, answer in enumerate(answers):

                    def is_loaded(number: int = number, answer: Answer = answer) -> bool:
                        found = ask(cluster, prompts(number))
                        assert found.token_ids == answer.token_ids
                        if found.num_loaded == 0:
                            # The scheduler did not know yet what the store has.
                            replace_worker(cluster)
                        return found.cached == LOADED

                    wait_until(is_loaded, 60, "blocks of another form are found")
                answers.append(ask(cluster, prompts(turn)))
                wait_for_blocks(store.address, NUM_BLOCKS * len(answers))


NUM_KILLS = [2, pytest.param(4, marks=WHOLE)]
SHARED = [prompt_of(number, 133, end) for number in range(8) for end in range(2)]
FRESH = [prompt_of(100 + number, 133) for number in range(32)]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("num_kills", NUM_KILLS)
def test_ranks_are_killed_while_blocks_move(
    tiny_checkpoint: Path, tmp_path: Path, num_kills: int
) -> None:
    dice = random.Random(3)
    ranks = {"tensor_parallel_size": 2}
    waves = make_waves(tiny_checkpoint, SHARED, FRESH, 4, **ranks)
    # Fewer blocks than the prompts have together, so that they go and come again and again.
    settings = {**ranks, "num_workers": 2, "kv_load": "always", "kv_cache_memory": 44 * BLOCK_BYTES}
    with (
        KvStore(tmp_path, *disk_flags(tmp_path / "disk", disk="1MiB")) as store,
        running(tiny_checkpoint, store.address, **settings) as waves.cluster,
    ):
        cluster = waves.cluster

        def kill_one() -> None:
            worker = dice.choice(list(cluster.local.pids("worker").values()))
            ended = [worker, *children_of(worker)]
            assert len(ended) == 2
            os.kill(dice.choice(ended), signal.SIGKILL)

        async def run() -> None:
            await waves.until_loaded({"memory", "disk"})
            for _ in range(num_kills):
                wave = asyncio.create_task(waves.run_one())
                await asyncio.sleep(dice.uniform(0.0, 0.3))
                kill_one()
                await wave
                while len((await audit(cluster.grpc_address)).scheduler.pools) < 2:
                    await waves.run_one()
                await waves.until_loaded({"memory", "disk"})

        asyncio.run(run())
        store.stop()
        assert check_files(tmp_path / "disk") > 0
