"""Stores that are started again: between two loads of a worker, when nothing is under way that
could fail, and yet what was mapped of the old one's memory is no longer the store's; and when a
store can serve no more, for then its process must end."""

import os
from contextlib import aclosing
from pathlib import Path

from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from support.cells.kv_cells import ROOMY, disk_flags, restart
from support.processes.kv_stores import KvStore, tier_stats

NUM_BYTES = 8192
NUM_BLOCKS = 8


async def test_a_store_started_again_is_greeted_again(tmp_path: Path) -> None:
    group = CacheGroup(num_layers=2, block_size=16, bytes_per_block=NUM_BYTES, dtype="float32")
    blocks = [
        OutgoingBlock(os.urandom(16), None, memoryview(os.urandom(NUM_BYTES)))
        for _ in range(NUM_BLOCKS)
    ]
    # So that what is loaded in another order has another place in memory.
    names = [block.name for block in reversed(blocks)]
    with KvStore(tmp_path, *disk_flags(tmp_path / "disk", memory=ROOMY)) as store:
        connector = KvStoreConnector()
        await connector.register(BlockLayout(b"m" * 32, b"n" * 32, (group,)), [store.address])

        async def loaded() -> list[tuple[bytes, bytes]]:
            async with aclosing(connector.get(store.address, names, 20.0)) as found:
                return [(block.name, bytes(block.payload)) async for block in found]

        expected = [(block.name, bytes(block.payload)) for block in reversed(blocks)]
        assert len(await connector.put(blocks)) == NUM_BLOCKS
        assert await loaded() == expected
        while (await tier_stats(store.address))["disk"].num_blocks < NUM_BLOCKS:
            pass
        first = connector.store_id
        restart(store)
        # Once from the disk, and then from the memory.
        for _ in range(2):
            assert await loaded() == expected
        assert len(await connector.put(blocks)) == NUM_BLOCKS
        assert connector.store_id != first
        await connector.close()
