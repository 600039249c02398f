"""A whole store when things go wrong: processes killed, files damaged, a disk that is full."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from pagewire_kvstore.tiers.disk.files import file_name
from support.processes import store_blocks
from support.processes.disk_blocks import (
    block_key,
    block_payload,
    block_record,
    files_below,
    path_of,
)
from support.processes.full_disk import run_with_mounts
from support.processes.redis_server import RedisServer
from support.processes.store_blocks import load, open_store

SIZE = 100_000
NUM_BLOCKS = 30
NUM_KILLS = 20


@pytest.fixture
def server(require_tool, tmp_path):
    program = require_tool("redis-server", "make tools")
    server = RedisServer(program, tmp_path)
    yield server.start("--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
    server.close()


@contextlib.asynccontextmanager
async def running(store):
    task = asyncio.create_task(store.run())
    try:
        yield store
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        store.close()


async def loads_after_a_kill(folder, redis_url, has_disk):
    """Which tier serves each block; all are whole and right."""
    async with running(open_store(folder, redis_url, has_disk=has_disk)) as store:
        tiers = [await load(store, number, SIZE) for number in range(NUM_BLOCKS)]
        assert sum(state.num_corrupt for state in store.states()) == 0
        return tiers


def test_killed_at_random_moments_it_serves_only_whole_blocks(server, tmp_path):
    """Every other process is killed at any moment of its start, the others among their writes."""
    dice = random.Random(11)
    served = []
    arguments = [store_blocks.__file__, tmp_path, server.url, NUM_BLOCKS, SIZE]
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as parent:
        for turn in range(NUM_KILLS):
            parent.stdin.write(f"{turn}\n")
            child = int(parent.stdout.readline())
            # A moment counted from the fork alone may lie before every write, on a busy machine.
            if is_written := turn % 2 == 1:
                assert parent.stdout.readline().strip() == store_blocks.WRITTEN
            time.sleep(dice.uniform(0.0, 0.06))
            os.kill(child, signal.SIGKILL)
            end = parent.stdout.readline().strip()
            if not is_written and end.startswith(store_blocks.WRITTEN):
                # Its end may come between the word and the end of its line.
                word = store_blocks.WRITTEN
                end = end.removeprefix(word) or parent.stdout.readline().strip()
            # It had not found a wrong block itself.
            assert int(end) == -signal.SIGKILL
            for has_disk in (True, False):
                served += asyncio.run(loads_after_a_kill(tmp_path, server.url, has_disk))
        parent.stdin.close()
    assert "memory" not in served
    assert min(served.count("disk"), served.count("redis")) > 0


async def test_no_damaged_file_is_served(tmp_path):
    dice = random.Random(3)
    num_damaged = 0
    async with running(open_store(tmp_path, "unix:///nowhere")) as store:
        for number in range(10):
            store.put([block_record(number)])
        await store.wait_written()
        folder = tmp_path / "disk"
        whole = [path_of(folder, number).read_bytes() for number in range(10)]
        for _ in range(1500):
            number, other = dice.sample(range(10), 2)
            data = bytearray(whole[number])
            match dice.randrange(4):
                case 0:
                    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
                case 1:
                    del data[dice.randrange(len(data)) :]
                case 2:
                    data += dice.randbytes(dice.randrange(1, 100))
                case _:
                    data[:] = whole[other]
            path_of(folder, number).write_bytes(data)
            num_damaged += 1
            store._memory.remove(block_key(number))
            assert await load(store, number, len(block_payload(number))) is None
            assert store.states()[1].num_corrupt == num_damaged
            assert not store.holds(block_key(number))
            store.put([block_record(number)])
            await store.wait_written()
            assert path_of(folder, number).read_bytes() == whole[number]
        assert sorted(path.name for path in files_below(folder)) == sorted(
            file_name(block_key(number)) for number in range(10)
        )


FULL_DISK = """
import asyncio, pathlib, subprocess, sys
from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.store.create import TierSettings, create_store
from support.processes.disk_blocks import block_record
from support.processes.store_blocks import load
folder = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
SIZE = 100_000
async def main():
    settings = TierSettings(memory_bytes=4 << 20, disk_path=folder / "disk", disk_bytes=1 << 30)
    events = EventLog(1000)
    store = create_store(settings, is_pinned=lambda _: False, events=events)
    task = asyncio.create_task(store.run())
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    for number in range(25):
        store.put([block_record(number, SIZE)])
        await store.wait_written()
    assert "No space left" in store.faults()["disk"], store.faults()
    # Three told; what came after was not even tried.
    assert store.states()[1].num_faults == 3, store.states()
    assert 3 < store.states()[1].num_blocks < 11, store.states()
    for number in range(25):
        assert await load(store, number, SIZE) == "memory"
    ballast.unlink()
    async with asyncio.timeout(20):
        while store.faults():
            await asyncio.sleep(0.02)
    store.put([block_record(1000, SIZE)])
    await store.wait_written()
    assert store.holds(block_record(1000).key)
    assert store._slower[0]._disk.contains(block_record(1000).key)
    assert store.states()[1].num_corrupt == 0
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    store.close()
asyncio.run(main())
"""


def test_a_full_disk_leaves_memory_working_and_is_tried_again(tmp_path):
    run_with_mounts(FULL_DISK, tmp_path)
