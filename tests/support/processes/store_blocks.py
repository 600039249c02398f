"""A process that puts blocks to a store of all tiers and gets them, to be killed."""

import asyncio
import os
import random
import sys
from pathlib import Path

from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.store.create import TierSettings, create_store
from support.processes.disk_blocks import block_key, block_payload, block_record

MEMORY_BYTES = 512 << 10
DISK_BYTES = 2 << 20
WRITTEN = "written"


def open_store(folder: Path, redis_url: str, *, has_disk: bool = True) -> BlockStore:
    settings = TierSettings(
        memory_bytes=MEMORY_BYTES,
        shared_memory_path=folder / "kv.arena",
        disk_path=folder / "disk" if has_disk else None,
        disk_bytes=DISK_BYTES if has_disk else None,
        redis_url=redis_url,
    )
    return create_store(settings, is_pinned=lambda _: False, events=EventLog(10_000))


async def load(store, number, size):
    """Tier that served the block, whole and right; None for a miss."""
    async with store.load(block_key(number)) as loaded:
        if loaded is None:
            return None
        if bytes(loaded.record.payload) != block_payload(number, size):
            raise RuntimeError(f"block {number} from {loaded.tier} is wrong")
        return loaded.tier


async def put_and_get(store, seed, num_blocks, size):
    dice = random.Random(seed)
    running = asyncio.create_task(store.run())
    store.put([block_record(dice.randrange(num_blocks), size)])
    written = asyncio.create_task(say_when_written(store))
    # An end, for when nobody is left to kill it.
    for _ in range(100_000):
        number = dice.randrange(num_blocks)
        if dice.random() < 0.5:
            store.put([block_record(number, size)])
        else:
            await load(store, number, size)
        await asyncio.sleep(0)
    await written
    running.cancel()


async def say_when_written(store):
    await store.wait_written()
    print(WRITTEN, flush=True)


def main(folder, redis_url, num_blocks, size):
    """For each line with a seed: fork a process, say its id, say how it ended.

    Between the two the process says WRITTEN, unless it is killed before all tiers have a block.
    """
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            store = open_store(Path(folder), redis_url)
            asyncio.run(put_and_get(store, int(line), num_blocks, size))
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
