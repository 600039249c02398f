"""Stores that hang, die, crawl, or whose own Redis and disk fail: every request finishes with the
tokens it has without a store, and afterwards blocks are loaded again."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cells.kv_cells import BLOCK_BYTES, PATIENCE_SECONDS, disk_flags, prompt_of, running
from support.processes.kv_stores import KvStore, RedisServer, tier_stats
from support.processes.processes import wait_until
from support.processes.slow_links import UNBOUNDED, SlowLink
from support.products import WHOLE
from support.traffic.kv_waves import Waves, make_waves

SHARED = [prompt_of(number, 133, end) for number in range(8) for end in range(2)]
FRESH = [prompt_of(100 + number, 133) for number in range(64)]
NUM_REQUESTS = 32
POOL_BYTES = 44 * BLOCK_BYTES
MEGABIT = 125_000.0
LOADED = {"memory", "disk", "redis"}


@pytest.fixture(scope="module")
def waves(tiny_checkpoint: Path) -> Waves:
    """32 requests at a time, half of them with prefixes that come again and again."""
    return make_waves(tiny_checkpoint, SHARED, FRESH, NUM_REQUESTS - len(SHARED))


async def run_faults(waves: Waves, store: KvStore, link: SlowLink, *, is_loading: bool) -> None:
    """Send waves while the store hangs, while it is gone and while its link is slow."""

    async def check_loads() -> None:
        if is_loading:
            await waves.until_loaded(LOADED)
        else:
            await waves.run_one()

    await waves.run_one()
    await check_loads()
    store.pause()
    try:
        await waves.run_one()
    finally:
        store.resume()
    await check_loads()
    store.kill()
    try:
        await waves.run_one()
    finally:
        store.start()
    await check_loads()
    link.set_rate(MEGABIT)
    await waves.run_one()
    link.set_rate(UNBOUNDED)
    await check_loads()


@pytest.mark.parametrize("kv_load", ["auto", pytest.param("always", marks=WHOLE)])
def test_requests_finish_whatever_the_store_does(
    tiny_checkpoint: Path, tmp_path: Path, waves: Waves, kv_load: str
) -> None:
    # Without shared memory, so that all of it goes over the link.
    flags = (*disk_flags(tmp_path / "disk"), "--shared-memory-path", "off")
    settings = {"kv_load": kv_load, "kv_cache_memory": POOL_BYTES}
    with (
        KvStore(tmp_path, *flags) as store,
        SlowLink(tmp_path, store.address) as link,
        running(tiny_checkpoint, link.address, **settings) as waves.cluster,
    ):
        asyncio.run(run_faults(waves, store, link, is_loading=kv_load == "always"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB, half of what the disk tier may use."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def wait_for_fault(store: KvStore, tier: str, *, is_there: bool) -> None:
    """Wait until the store says that a tier does not work, or works again."""

    def holds() -> bool:
        return asyncio.run(tier_stats(store.address))[tier].HasField("fault") is is_there

    wait_until(holds, PATIENCE_SECONDS, f"fault of {tier}: {is_there}")


def test_requests_finish_whatever_the_tiers_do(
    tiny_checkpoint: Path, tmp_path: Path, waves: Waves, small_disk: Path
) -> None:
    with RedisServer(tmp_path) as redis:
        flags = (*disk_flags(small_disk / "disk", memory="1MiB"), "--redis", redis.url)
        settings = {"kv_load": "always", "kv_cache_memory": POOL_BYTES}
        with (
            KvStore(tmp_path, *flags) as store,
            running(tiny_checkpoint, store.address, **settings) as waves.cluster,
        ):
            for _ in range(2):
                asyncio.run(waves.run_one())
            wait_until(
                lambda: asyncio.run(tier_stats(store.address))["disk"].num_faults,
                PATIENCE_SECONDS,
                "the disk is full",
            )
            redis.pause()
            asyncio.run(waves.run_one())
            wait_for_fault(store, "redis", is_there=True)
            asyncio.run(waves.run_one())
            redis.resume()
            wait_for_fault(store, "redis", is_there=False)
            asyncio.run(waves.until_loaded({"redis"}))
            redis.kill()
            asyncio.run(waves.run_one())
            wait_for_fault(store, "redis", is_there=True)
            with RedisServer(tmp_path):
                wait_for_fault(store, "redis", is_there=False)
                asyncio.run(waves.until_loaded({"memory", "disk"}))
