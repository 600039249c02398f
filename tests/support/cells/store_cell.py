"""A store of memory and disk for tests, and what its events say is there."""

import asyncio
import contextlib

from pagewire_kvstore.blocks.event_log import BlockChange, EventLog
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.disk.tier import DiskTier
from pagewire_kvstore.tiers.memory import MemoryTier
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.processes.disk_blocks import block_key

CAPACITY = 4 * GRANULE_BYTES


class Cell:
    """A store, and what its events say is there."""

    def __init__(
        self,
        folder=None,
        *,
        disk_bytes=1 << 20,
        queued_bytes=1 << 20,
        pinned=(),
        quota=None,
        disk_quota=None,
    ):
        self.pinned = set(pinned)
        self.disk = None
        slower = []
        if folder is not None:
            self.disk = DiskBlocks(folder, disk_bytes, quota=lambda _: disk_quota)
            slower.append(DiskTier(self.disk, queued_bytes))
        self.events = EventLog(1000)
        memory = MemoryTier(CAPACITY, lambda _: quota, self.pinned.__contains__)
        self.store = BlockStore(memory, slower, self.events)

    def announced(self):
        names = set()
        for event in self.events.since(1):
            if event.change is BlockChange.STORED:
                assert not names.intersection(event.names), "announced twice"
                names.update(event.names)
            else:
                names.difference_update(event.names)
        return names

    async def found(self, number):
        """Payload, and the tier it came from."""
        async with self.store.load(block_key(number)) as loaded:
            if loaded is None:
                return None, None
            if loaded.pin is not None:
                assert loaded.pin.record is loaded.record
            return bytes(loaded.record.payload), loaded.tier

    async def payload(self, number):
        return (await self.found(number))[0]

    def state(self, tier):
        return {state.tier: state for state in self.store.states()}[tier]


@contextlib.asynccontextmanager
async def running(*args, **options):
    cell = Cell(*args, **options)
    task = asyncio.create_task(cell.store.run())
    try:
        yield cell
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cell.store.close()


def names(*numbers):
    return {block_key(number).name for number in numbers}
