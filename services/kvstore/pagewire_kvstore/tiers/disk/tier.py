"""The disk tier for an event loop: what waits for the disk does so in threads."""

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
"""A disk that fails is tried again at least this often, with one block."""


READ_SECONDS = 5.0
"""A read that takes longer has lost against computing the block again; the disk hangs."""

PROBE_SECONDS = 0.5


def _ignore(what: object) -> None:
    return


def _breaker() -> CircuitBreaker:
    return CircuitBreaker(first_seconds=0.25, max_seconds=_MAX_OPEN_SECONDS)


class DiskTier:
    """A SlowTier over a DiskTier: one thread writes, two read. A disk that fails is left alone for
    a growing time, by writes and reads each; one that is full goes on being read. With or without
    blocks to write, it is tried again."""

    name = "disk"

    def __init__(self, disk: DiskBlocks, max_queued_bytes: int) -> None:
        """Args: `max_queued_bytes` bounds what waits to be written."""
        self._disk = disk
        self.on_gone: Callable[[BlockKey], None] = _ignore
        self.on_found: Callable[[Sequence[BlockKey]], None] = _ignore
        self._write_health = TierHealth(_breaker())
        self._read_health = TierHealth(_breaker())
        self._writer = TierWriter(
            self._put, self._write_health, max_queued_bytes, lambda key: self.on_gone(key)
        )
        # What a probe writes: less may fit where a block does not.
        self._failed_bytes = 0
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="disk-writer")
        self._readers = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="disk-reader")

    def holds(self, key: BlockKey) -> bool:
        """Whether the block is there, as far as can be told without reading it, or on its way."""
        return key in self._writer or self._disk.contains(key)

    def keys(self) -> list[BlockKey]:
        """Blocks on disk."""
        return self._disk.keys()

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a block that is on its way."""
        return self._writer.queued(key)

    def offer(self, record: BlockRecord, release: Callable[[], None] | None = None) -> bool:
        """Write a block soon, if it is not there; see TierWriter.offer."""
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
            # It was announced once, and is found to be damaged or gone only now.
            self.on_gone(key)
        return record

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return which of these blocks are there."""
        return {key for key in keys if self.holds(key)}

    def count_miss(self, key: BlockKey) -> None:
        """Nothing: what is not on disk is known without a look, and `get` counts none either."""

    async def delete_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove a tenant's blocks and return which; those on their way, too."""
        keys = await self._writer.drop_tenant(tenant)
        keys += self._disk.tenant_keys(tenant)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._write_thread, self._disk.delete_tenant, tenant)
        finally:
            # Also when some could not be removed.
            for key in keys:
                self.on_gone(key)
        return keys

    async def wait_written(self) -> None:
        """Wait until what was offered is written or dropped."""
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
            fault=self._write_health.fault or self._read_health.fault,
        )

    async def run(self) -> None:
        """Write what was offered, and find out whether a full disk has room again, until
        cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._watch())

    def close(self) -> None:
        """Wait for the calls that are under way and give the folder back."""
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
