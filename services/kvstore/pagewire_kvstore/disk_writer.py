"""Blocks on their way to disk: a bounded queue that one thread empties. What does not fit is
dropped and counted: the block is still in memory."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pagewire_kvstore.block_key import BlockKey
from pagewire_kvstore.disk_tier import DiskTier
from pagewire_kvstore.record import BlockRecord
from pagewire_shared.errors import PagewireError

_logger = logging.getLogger(__name__)


class DiskWriter:
    """Writes through to a disk tier; used from one event loop."""

    def __init__(
        self,
        disk: DiskTier,
        max_queued_bytes: int,
        *,
        on_gone: Callable[[BlockKey], None],
    ) -> None:
        """Args: `on_gone` is told of blocks that the disk evicted, or that never came there."""
        self._disk = disk
        self._max_queued_bytes = max_queued_bytes
        self._on_gone = on_gone
        self._queued: dict[BlockKey, BlockRecord] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="disk-writer")
        self.queued_bytes = 0
        self.num_dropped = 0
        self.fault: str | None = None
        """Why the last write failed; None once one has gone well again."""

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a block that is on its way."""
        return self._queued.get(key)

    def offer(self, record: BlockRecord) -> bool:
        """Queue a block, whose payload must stay as it is; return whether there was room."""
        if record.key in self._queued or self._disk.contains(record.key):
            return True
        num_bytes = memoryview(record.payload).nbytes
        if self.queued_bytes + num_bytes > self._max_queued_bytes:
            self.num_dropped += 1
            return False
        self._queued[record.key] = record
        self.queued_bytes += num_bytes
        self._idle.clear()
        self._wake.set()
        return True

    async def wait_idle(self) -> None:
        """Wait until nothing is on its way."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            while self._queued:
                await self._write(next(iter(self._queued.values())))
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    def close(self) -> None:
        """Wait for the write that is under way; what is queued behind it is lost."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _write(self, record: BlockRecord) -> None:
        loop = asyncio.get_running_loop()
        gone: list[BlockKey] = []
        try:
            gone = await loop.run_in_executor(self._thread, self._disk.put, record)
            self.fault = None
        except PagewireError as error:
            if self.fault is None:
                _logger.warning("blocks do not get to disk: %s", error.message)
            self.fault = error.message
            gone = [record.key]
        finally:
            del self._queued[record.key]
            self.queued_bytes -= memoryview(record.payload).nbytes
        for key in gone:
            self._on_gone(key)
