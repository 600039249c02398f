"""The blocks of a store over its tiers: memory over disk. Decides where blocks go and says what
became of them; knows no streams. Used from one event loop."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pagewire_kvstore.block_key import BlockKey
from pagewire_kvstore.disk_tier import DiskTier
from pagewire_kvstore.disk_writer import DiskWriter
from pagewire_kvstore.event_log import BlockChange, EventLog
from pagewire_kvstore.memory_tier import MemoryTier
from pagewire_kvstore.record import BlockRecord
from pagewire_kvstore.tier_errors import TierUnavailableError
from pagewire_shared.errors import InvalidRequestError, OverloadedError, PagewireError
from pagewire_shared.ids import BlockName

_logger = logging.getLogger(__name__)

_DISK_READERS = 2


class BlockStore:
    """Every block goes to memory, and through to disk if there is one; a hit on disk comes back to
    memory. `run` it while it is used.

    Attributes:
        num_promoted: Loads answered from disk.
        num_faults: Loads that the disk could not answer because it failed.
    """

    def __init__(
        self,
        memory: MemoryTier,
        disk: DiskTier | None,
        events: EventLog,
        *,
        max_queued_bytes: int,
    ) -> None:
        """Args: `max_queued_bytes` bounds what waits to be written to disk."""
        self._memory = memory
        self._disk = disk
        self._events = events
        self._writer = (
            DiskWriter(disk, max_queued_bytes, on_gone=self._tell_if_gone)
            if disk is not None
            else None
        )
        self._readers = ThreadPoolExecutor(_DISK_READERS, thread_name_prefix="disk-reader")
        self.num_promoted = 0
        self.num_faults = 0

    @property
    def disk_fault(self) -> str | None:
        """Why blocks do not get to disk at the moment."""
        return self._writer.fault if self._writer is not None else None

    def holds(self, key: BlockKey) -> bool:
        """Return whether a load would be tried; only the load says whether it is whole."""
        is_on_way = self._writer is not None and self._writer.queued(key) is not None
        is_on_disk = self._disk is not None and self._disk.contains(key)
        return key in self._memory or is_on_way or is_on_disk

    def names(self) -> list[BlockName]:
        """Return the names of all blocks, each once."""
        keys = self._memory.keys()
        if self._disk is not None:
            keys += self._disk.keys()
        return list(dict.fromkeys(key.name for key in keys))

    def put(self, records: Sequence[BlockRecord]) -> None:
        """Make the groups of one block loadable, and send them on to disk.

        Raises:
            OverloadedError: Pinned blocks and readers leave no room; none of them is stored.
            InvalidRequestError: A group is larger than memory, or than its tenant's quota.
        """
        names = {record.key.name for record in records}
        assert len(names) == 1, "the groups of one block have one name"
        is_known = all(self.holds(record.key) for record in records)
        stored: list[BlockKey] = []
        evicted: list[BlockKey] = []
        try:
            for record in records:
                is_new = record.key not in self._memory
                evicted += self._memory.put(record)
                if is_new:
                    stored.append(record.key)
        except PagewireError:
            for key in stored:
                self._memory.remove(key)
            self._tell_all_if_gone(evicted)
            raise
        if self._writer is not None:
            for record in records:
                self._writer.offer(record)
        if not is_known:
            self._events.add(BlockChange.STORED, list(names))
        self._tell_all_if_gone(evicted)

    @contextlib.asynccontextmanager
    async def load(self, key: BlockKey) -> AsyncIterator[BlockRecord | None]:
        """Yield a block whose payload stays as it is inside the `with`, or None for a miss."""
        hold = self._memory.hold(key)
        if hold is not None:
            try:
                yield hold.record
            finally:
                self._memory.let_go(hold)
            return
        record = self._writer.queued(key) if self._writer is not None else None
        yield record if record is not None else await self._load_from_disk(key)

    async def run(self) -> None:
        """Write to disk, until cancelled."""
        if self._writer is not None:
            await self._writer.run()

    async def wait_written(self) -> None:
        """Wait until all that was put is on disk, or was dropped."""
        if self._writer is not None:
            await self._writer.wait_idle()

    def close(self) -> None:
        """Give memory and threads back; `run` has ended."""
        if self._writer is not None:
            self._writer.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._memory.close()

    async def _load_from_disk(self, key: BlockKey) -> BlockRecord | None:
        if self._disk is None or not self._disk.contains(key):
            return None
        loop = asyncio.get_running_loop()
        try:
            record = await loop.run_in_executor(self._readers, self._disk.get, key)
        except TierUnavailableError as error:
            if not self.num_faults:
                _logger.warning("a block cannot be loaded from disk: %s", error.message)
            self.num_faults += 1
            return None
        if record is None:
            # It was announced once, and is found to be damaged or gone only now.
            self._tell_if_gone(key)
            return None
        self.num_promoted += 1
        # Without room in memory it is read from disk again the next time.
        with contextlib.suppress(OverloadedError, InvalidRequestError):
            self._tell_all_if_gone(self._memory.put(record))
        return record

    def _tell_all_if_gone(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            self._tell_if_gone(key)

    def _tell_if_gone(self, key: BlockKey) -> None:
        if not self.holds(key):
            self._events.add(BlockChange.REMOVED, [key.name])
