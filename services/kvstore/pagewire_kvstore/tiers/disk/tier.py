"""The disk tier for an event loop: runs the calls of DiskBlocks in threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, TierState
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_kvstore.tiers.health import TierHealth
from pagewire_kvstore.tiers.writer import TierWriter
from pagewire_shared.process.circuit import CircuitBreaker

_NUM_READERS = 2
_MAX_OPEN_SECONDS = 5.0
"""Longest pause before a failing disk is tried again, with one block."""


READ_SECONDS = 5.0
"""A longer read means that the disk hangs; computing the block again is faster."""

PROBE_SECONDS = 0.5


def _ignore(what: object) -> None:
    return


def _breaker() -> CircuitBreaker:
    return CircuitBreaker(first_seconds=0.25, max_seconds=_MAX_OPEN_SECONDS)


class DiskTier:
    """A SlowTier over DiskBlocks: one thread writes, two read.

    Writes and reads have a circuit breaker each, so a full disk is still read. A background probe
    tries writes again, also when no block is queued.
    """

    name = "disk"

    def __init__(self, disk: DiskBlocks, max_queued_bytes: int) -> None:
        """Args: `max_queued_bytes` bounds the blocks that wait to be written."""
        self._disk = disk
        self.on_gone: Callable[[BlockKey], None] = _ignore
        self.on_found: Callable[[Sequence[BlockKey]], None] = _ignore
        self._write_health = TierHealth(_breaker())
        self._read_health = TierHealth(_breaker())
        self._writer = TierWriter(
            self._put, self._write_health, max_queued_bytes, lambda key: self.on_gone(key)
        )
        # Size of a probe: that of the last failed block, because less might still fit.
        self._failed_bytes = 0
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="disk-writer")
        self._readers = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="disk-reader")

    def holds(self, key: BlockKey) -> bool:
        """Return whether the block is indexed or queued; its file is not read."""
        return key in self._writer or self._disk.contains(key)

    def keys(self) -> list[BlockKey]:
        """Blocks on disk."""
        return self._disk.keys()

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a block that waits to be written."""
        return self._writer.queued(key)

    def offer(self, record: BlockRecord, release: Callable[[], None] | None = None) -> bool:
        """Queue a block unless the disk has it; see TierWriter.offer."""
        if self._disk.contains(record.key):
            if release is not None:
                release()
            return True
        return self._writer.offer(record, release)

    async def get(self, key: BlockKey) -> BlockRecord | None:
        """Return a block, verified, or None."""
        if not self._disk.contains(key) or not self._read_health.may_try():
            return None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(READ_SECONDS):
                record = await loop.run_in_executor(self._readers, self._disk.get, key)
        except TimeoutError:
            why = f"no answer within {READ_SECONDS:g} s"
            self._disk.log.fault("get", "timeout", why)
            self._read_health.failed(
                TierUnavailableError(f"the disk tier cannot get: {why}", tier=self.name)
            )
            return None
        except TierUnavailableError as error:
            self._read_health.failed(error)
            return None
        self._read_health.worked()
        if record is None:
            # The block was announced before, and only now found damaged or gone.
            self.on_gone(key)
        return record

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return the blocks that `holds` is true for."""
        return {key for key in keys if self.holds(key)}

    def count_miss(self, key: BlockKey) -> None:
        """Do nothing: the index knows misses without a read, and `get` counts none either."""

    async def delete_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove a tenant's blocks, also queued ones, and return their keys."""
        keys = await self._writer.drop_tenant(tenant)
        keys += self._disk.tenant_keys(tenant)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._write_thread, self._disk.delete_tenant, tenant)
        finally:
            # Called also when some blocks could not be removed.
            for key in keys:
                self.on_gone(key)
        return keys

    async def wait_written(self) -> None:
        """Wait until all offered blocks are written or dropped."""
        await self._writer.wait_idle()

    def state(self) -> TierState:
        """State of the tier."""
        disk = self._disk
        return TierState(
            tier=self.name,
            num_blocks=disk.num_blocks,
            used_bytes=disk.used_bytes,
            capacity_bytes=disk.capacity_bytes,
            num_hits=disk.num_hits,
            num_misses=disk.num_misses,
            num_corrupt=disk.num_corrupt,
            num_faults=disk.num_faults,
            num_evicted=disk.num_evicted,
            fault=self._write_health.fault or self._read_health.fault,
        )

    async def run(self) -> None:
        """Write offered blocks and probe a failing disk, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._watch())

    def close(self) -> None:
        """Wait for the calls that are under way, then unlock the folder."""
        self._writer.close()
        for threads in (self._write_thread, self._readers):
            threads.shutdown(wait=True, cancel_futures=True)
        self._disk.close()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            if self._write_health.fault is None or not self._write_health.may_try():
                continue
            try:
                await loop.run_in_executor(
                    self._write_thread, self._disk.probe_write, self._failed_bytes
                )
                self._write_health.worked()
            except TierUnavailableError as error:
                self._write_health.failed(error)

    async def _put(self, record: BlockRecord) -> list[BlockKey]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._write_thread, self._disk.put, record)
        except TierUnavailableError:
            self._failed_bytes = memoryview(record.payload).nbytes
            raise
