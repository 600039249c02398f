"""Bounded queue of blocks that one task writes to a slower tier.

Blocks beyond the bound are dropped and counted; they are still in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_kvstore.tiers.health import TierHealth
from pagewire_shared.errors import PagewireError
from pagewire_shared.process.cancellation import end_if_cancelled


def _nothing() -> None:
    return


class _Queued(NamedTuple):
    record: BlockRecord
    release: Callable[[], None] | None


class TierWriter:
    """Writes through to one tier; used from one event loop.

    Attributes:
        queued_bytes: Payload bytes in the queue.
        num_dropped: Blocks that did not get to the tier: the queue was full, the tier did not
            work, or could not take them.
    """

    def __init__(
        self,
        write: Callable[[BlockRecord], Awaitable[Sequence[BlockKey]]],
        health: TierHealth,
        max_queued_bytes: int,
        on_gone: Callable[[BlockKey], None],
    ) -> None:
        """Args:
        write: Puts a block to the tier and returns the evicted keys. Raises TierUnavailableError
            when the tier does not work, another PagewireError when it cannot take the block.
        health: Health of the tier's writes.
        max_queued_bytes: Most payload bytes in the queue.
        on_gone: Called with each block that the tier evicted or could not write.
        """
        self._write = write
        self._health = health
        self._max_queued_bytes = max_queued_bytes
        self._on_gone = on_gone
        self._queued: dict[BlockKey, _Queued] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # Set when a write has ended.
        self._moved = asyncio.Event()
        self._writing: BlockKey | None = None
        self.queued_bytes = 0
        self.num_dropped = 0

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._queued

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a queued block whose payload never changes; None for one with a `release`."""
        item = self._queued.get(key)
        return item.record if item is not None and item.release is None else None

    def offer(self, record: BlockRecord, release: Callable[[], None] | None = None) -> bool:
        """Queue a block; return whether there was room.

        Args:
            record: The block. Its payload must not change before `release`, or ever without one.
            release: Called once when the payload is no longer needed, also for a refused block.
        """
        num_bytes = memoryview(record.payload).nbytes
        is_queued = record.key in self._queued
        # A block larger than the bound is queued alone.
        is_full = bool(self._queued) and self.queued_bytes + num_bytes > self._max_queued_bytes
        if is_queued or is_full:
            self.num_dropped += not is_queued
            (release or _nothing)()
            return is_queued
        self._queued[record.key] = _Queued(record, release)
        self.queued_bytes += num_bytes
        self._idle.clear()
        self._wake.set()
        return True

    async def wait_idle(self) -> None:
        """Wait until the queue is empty."""
        await self._idle.wait()

    async def drop_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove a tenant's blocks from the queue and return their keys; wait for a write of one of
        them that is under way."""
        keys = [key for key, item in self._queued.items() if item.record.tenant == tenant]
        for key in keys:
            if key != self._writing:
                self._forget(key)
        while self._writing in keys:
            self._moved.clear()
            await self._moved.wait()
        return keys

    async def run(self) -> None:
        """Write queued blocks, until cancelled."""
        while True:
            while self._queued:
                await self._write_one(next(iter(self._queued.values())).record)
                # A tier's client may swallow a cancellation while it connects.
                end_if_cancelled()
            self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    def close(self) -> None:
        """Drop the queue; `run` must have ended."""
        for key in list(self._queued):
            self._forget(key)

    async def _write_one(self, record: BlockRecord) -> None:
        key = record.key
        gone: Sequence[BlockKey] = [key]
        self._writing = key
        try:
            if self._health.may_try():
                gone = await self._write(record)
                self._health.worked()
            else:
                self.num_dropped += 1
        except TierUnavailableError as error:
            self.num_dropped += 1
            self._health.failed(error)
        except PagewireError:
            # The block is too large, or there is no room for it: the tier itself works.
            self.num_dropped += 1
            self._health.worked()
        finally:
            self._writing = None
            self._forget(key)
            self._moved.set()
        for other in gone:
            self._on_gone(other)

    def _forget(self, key: BlockKey) -> None:
        item = self._queued.pop(key)
        self.queued_bytes -= memoryview(item.record.payload).nbytes
        (item.release or _nothing)()
