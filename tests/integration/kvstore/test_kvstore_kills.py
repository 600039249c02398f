"""Stores and workers killed at any moment while blocks are put and loaded: every request ends with
the tokens it has without a store, nothing leaks, and no half-written block is left to be served."""

import asyncio
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cells.kv_cells import BLOCK_BYTES, check_files, disk_flags, prompt_of, restart, running
from support.processes.kv_stores import KvStore
from support.products import WHOLE
from support.traffic.kv_waves import Waves, make_waves
from support.traffic.streams import audit

NUM_PREFIXES = 8
SHARED = [prompt_of(number, 133, end) for number in range(NUM_PREFIXES) for end in range(2)]
# New to the store again and again, whose disk has room for a part of them.
FRESH = [prompt_of(100 + number, 133) for number in range(32)]
FRESH_AT_A_TIME = 4
DISK_SIZE = "1MiB"
# Fewer blocks than the prefixes have together, so that they go and come again and again.
SETTINGS = {"kv_load": "always", "kv_cache_memory": 44 * BLOCK_BYTES}
NUM_STORE_KILLS = [6, pytest.param(10, marks=WHOLE)]
NUM_WORKER_KILLS = [2, pytest.param(3, marks=WHOLE)]


@pytest.fixture(scope="module")
def waves(tiny_checkpoint: Path) -> Waves:
    """The prompts, with what they give where nothing is kept."""
    return make_waves(tiny_checkpoint, SHARED, FRESH, FRESH_AT_A_TIME)


async def disturbed(waves: Waves, disturb: Callable[[], None], count: int, seed: int) -> None:
    """Send waves while something happens `count` times at random moments."""
    dice = random.Random(seed)

    async def act() -> None:
        for _ in range(count):
            await asyncio.sleep(dice.uniform(0.0, 0.4))
            await asyncio.to_thread(disturb)

    disturbing = asyncio.create_task(act())
    while not disturbing.done():
        await waves.run_one()
    await disturbing


@pytest.mark.parametrize("num_kills", NUM_STORE_KILLS)
def test_a_store_is_killed_at_any_moment(
    tiny_checkpoint: Path, tmp_path: Path, waves: Waves, num_kills: int
) -> None:
    flags = disk_flags(tmp_path / "disk", disk=DISK_SIZE)
    with (
        KvStore(tmp_path, *flags) as store,
        running(tiny_checkpoint, store.address, **SETTINGS) as waves.cluster,
    ):

        async def run() -> None:
            await waves.until_loaded({"memory", "disk"})
            await disturbed(waves, lambda: restart(store), num_kills, seed=1)
            await waves.until_loaded({"memory", "disk"})

        asyncio.run(run())
        store.kill()
        assert check_files(tmp_path / "disk") >= NUM_PREFIXES * 8
        # The disk's blocks outlive the memory's.
        store.start()
        asyncio.run(waves.until_loaded({"disk"}))


@pytest.mark.parametrize("num_kills", NUM_WORKER_KILLS)
def test_workers_are_killed_while_they_load(
    tiny_checkpoint: Path, tmp_path: Path, waves: Waves, num_kills: int
) -> None:
    dice = random.Random(2)
    with (
        KvStore(tmp_path, *disk_flags(tmp_path / "disk", disk=DISK_SIZE)) as store,
        running(tiny_checkpoint, store.address, num_workers=2, **SETTINGS) as waves.cluster,
    ):
        cluster = waves.cluster

        def kill_one() -> None:
            pids = cluster.local.pids("worker")
            if pids:
                os.kill(dice.choice(list(pids.values())), signal.SIGKILL)

        async def run() -> None:
            await waves.until_loaded({"memory", "disk"})
            for turn in range(num_kills):
                await disturbed(waves, kill_one, 1, seed=turn)
                while len((await audit(cluster.grpc_address)).scheduler.pools) < 2:
                    await asyncio.sleep(0.1)
                await waves.until_loaded({"memory", "disk"})

        asyncio.run(run())
