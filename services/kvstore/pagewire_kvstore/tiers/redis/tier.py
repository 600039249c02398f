"""The Redis tier: blocks that several stores share, for as long as Redis keeps them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, TierState
from pagewire_kvstore.tiers.errors import RecordTooLargeError, TierUnavailableError
from pagewire_kvstore.tiers.health import FaultLog, TierHealth
from pagewire_kvstore.tiers.record_codec import (
    MAX_HEADER_BYTES,
    CorruptRecordError,
    decode_header,
    decode_record,
    encode_record,
)
from pagewire_kvstore.tiers.redis.values import RedisUsage, RedisValues
from pagewire_kvstore.tiers.writer import TierWriter
from pagewire_shared.process.cancellation import end_if_cancelled
from pagewire_shared.process.circuit import CircuitBreaker

MAX_RECORD_BYTES = 64 << 20
MAX_KNOWN = 100_000
"""Keys remembered; some 330 bytes each, the store's share included."""

DEFAULT_TTL_SECONDS = 24 * 3600
PROBE_SECONDS = 0.5
USAGE_SECONDS = 5.0
LEARN_SECONDS = 30.0
"""Pause between two scans for blocks of other stores; a page of keys takes Redis less than 1 ms."""


def _ignore(what: object) -> None:
    return


class RedisTier:
    """A SlowTier over one Redis, not a cluster, that other stores may use, too.

    Redis bounds its own memory: set `maxmemory`, and `maxmemory-policy volatile-lru` or
    `allkeys-lru`. No store can keep a ledger of blocks that other stores put and Redis evicts, so
    quotas and pins do not apply here. Every value has a time to live, which a hit renews, so that
    unused values also leave a Redis without a bound.

    Every read verifies the record: a damaged one is a miss and moves to quarantine. A Redis that is
    dead, stopped or slow costs a few deadlines. Then no call is made until a background probe
    succeeds. A full Redis takes no writes and is still read.

    The tier remembers the latest keys that were put or found. They are a hint, because Redis does
    not report evictions.
    """

    name = "redis"

    def __init__(self, values: RedisValues, *, ttl_seconds: int, max_queued_bytes: int) -> None:
        """Args:
        values: Calls to Redis.
        ttl_seconds: Time in seconds after which Redis drops an unused block.
        max_queued_bytes: Bounds the blocks that wait to be written.
        """
        self._values = values
        self._ttl_seconds = ttl_seconds
        self.on_gone: Callable[[BlockKey], None] = _ignore
        self.on_found: Callable[[Sequence[BlockKey]], None] = _ignore
        self._known: OrderedDict[BlockKey, None] = OrderedDict()
        self._log = FaultLog(self.name)
        self._read_health = TierHealth(CircuitBreaker())
        self._write_health = TierHealth(CircuitBreaker())
        self._writer = TierWriter(
            self._put, self._write_health, max_queued_bytes, lambda key: self.on_gone(key)
        )
        self._usage = RedisUsage(0, 0, 0)
        self._num_hits = 0
        self._num_misses = 0

    def holds(self, key: BlockKey) -> bool:
        """Return whether the block is queued, or is a known key of a Redis that works."""
        return key in self._writer or (key in self._known and self._read_health.is_good)

    def keys(self) -> list[BlockKey]:
        """Return the known keys; Redis may have evicted some of them."""
        return list(self._known)

    def queued(self, key: BlockKey) -> BlockRecord | None:
        """Return a block that waits to be written."""
        return self._writer.queued(key)

    def offer(self, record: BlockRecord, release: Callable[[], None] | None = None) -> bool:
        """Queue a block; see TierWriter.offer."""
        return self._writer.offer(record, release)

    async def get(self, key: BlockKey) -> BlockRecord | None:
        """Return a block, verified, or None. Unknown keys are read, too: other stores put some."""
        if not self._read_health.is_good:
            return None
        try:
            value = await self._values.get(key, MAX_RECORD_BYTES, self._ttl_seconds)
        except TierUnavailableError as error:
            self._failed(self._read_health, error)
            return None
        self._read_health.worked()
        if value is None:
            self._miss(key)
            return None
        try:
            record = decode_record(value, key)
        except CorruptRecordError as error:
            await self._put_aside(key, error)
            return None
        self._num_hits += 1
        self._know(key)
        return record

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return the blocks that Redis has."""
        if not self._read_health.is_good:
            return set()
        try:
            found = await self._values.exist(keys)
        except TierUnavailableError as error:
            self._failed(self._read_health, error)
            return set()
        self._read_health.worked()
        return found

    def count_miss(self, key: BlockKey) -> None:
        """Count a block that `find` did not find, unless Redis gave no answer."""
        if self._read_health.fault is None:
            self._miss(key)

    async def delete_tenant(self, tenant: str) -> list[BlockKey]:
        """Remove a tenant's blocks, also those of other stores, and return their keys.

        Other stores must delete the blocks in their own memory and disk. The header of every block
        is read: deleting is rare, and an index of tenants would need the same sweep, because Redis
        does not report evictions.
        """
        removed = dict.fromkeys(await self._writer.drop_tenant(tenant))
        try:
            async for page in self._values.scan():
                starts = await self._values.starts(page, MAX_HEADER_BYTES)
                keys = [
                    key
                    for key, start in zip(page, starts, strict=True)
                    if _tenant_in(start) == tenant
                ]
                await self._values.remove(keys)
                removed.update(dict.fromkeys(keys))
        except TierUnavailableError as error:
            self._failed(self._read_health, error)
            raise
        finally:
            for key in removed:
                self._known.pop(key, None)
                self.on_gone(key)
        return list(removed)

    async def wait_written(self) -> None:
        """Wait until all offered blocks are written or dropped."""
        await self._writer.wait_idle()

    def state(self) -> TierState:
        """Return the state; keys and bytes are those of the whole Redis, some seconds old."""
        return TierState(
            tier=self.name,
            num_blocks=self._usage.num_keys,
            used_bytes=self._usage.used_bytes,
            capacity_bytes=self._usage.max_bytes,
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_corrupt=self._log.num_corrupt,
            num_faults=self._log.num_faults,
            fault=self._read_health.fault or self._write_health.fault,
        )

    async def run(self) -> None:
        """Write offered blocks, learn keys of other stores and probe Redis, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._writer.run())
                tasks.create_task(self._learn())
                tasks.create_task(self._watch())
        finally:
            await self._values.close()

    def close(self) -> None:
        """Drop the blocks that were not written."""
        self._writer.close()

    async def _put(self, record: BlockRecord) -> list[BlockKey]:
        header = encode_record(record)
        payload = memoryview(record.payload).cast("B")
        if len(header) + payload.nbytes > MAX_RECORD_BYTES:
            raise RecordTooLargeError(f"a record of more than {MAX_RECORD_BYTES} bytes")
        try:
            await self._values.put(record.key, header, payload, self._ttl_seconds)
        except TierUnavailableError as error:
            self._log.fault("write", error.reason, error.message)
            raise
        self._know(record.key)
        return []

    async def _learn(self) -> None:
        """Scan periodically for blocks of other stores, and of this store before its start.

        By the time that a block is wanted, the store that put it may be gone.
        """
        while True:
            try:
                if self._read_health.is_good:
                    await self._learn_once()
            except TierUnavailableError as error:
                # Only a failing read opens the circuit; a failing scan is counted.
                self._log.fault("tell its keys", error.reason, error.message)
            end_if_cancelled()
            await asyncio.sleep(LEARN_SECONDS)

    async def _learn_once(self) -> None:
        async for page in self._values.scan():
            new = [key for key in page if key not in self._known]
            if len(self._known) + len(new) > MAX_KNOWN:
                return
            for key in new:
                self._know(key)
            self.on_found(new)

    async def _watch(self) -> None:
        """Probe a Redis that failed, and ask a working Redis for its usage."""
        loop = asyncio.get_running_loop()
        next_usage = loop.time()
        while True:
            try:
                is_due = self._read_health.fault is not None or loop.time() >= next_usage
                if is_due and self._read_health.may_try():
                    next_usage = loop.time() + USAGE_SECONDS
                    await self._values.probe_read()
                    self._read_health.worked()
                    await self._ask_usage()
            except TierUnavailableError as error:
                self._failed(self._read_health, error)
            try:
                if self._write_health.fault is not None and self._write_health.may_try():
                    await self._values.probe_write()
                    self._write_health.worked()
            except TierUnavailableError as error:
                self._failed(self._write_health, error)
            # The client may swallow a cancellation while it connects.
            end_if_cancelled()
            await asyncio.sleep(PROBE_SECONDS)

    async def _ask_usage(self) -> None:
        try:
            self._usage = await self._values.usage()
        except TierUnavailableError as error:
            # The Redis user may have permission to get and set, but not for INFO.
            self._log.fault("tell its usage", error.reason, error.message)

    async def _put_aside(self, key: BlockKey, error: CorruptRecordError) -> None:
        self._log.corrupt(key.name.hex(), error.reason, error.message)
        self._miss(key)
        try:
            await self._values.quarantine(key)
        except TierUnavailableError as failure:
            self._failed(self._read_health, failure)

    def _failed(self, health: TierHealth, error: TierUnavailableError) -> None:
        self._log.fault("answer", error.reason, error.message)
        health.failed(error)

    def _miss(self, key: BlockKey) -> None:
        self._num_misses += 1
        self._known.pop(key, None)
        # The block may have been announced before, and is only now found damaged or gone.
        self.on_gone(key)

    def _know(self, key: BlockKey) -> None:
        self._known[key] = None
        self._known.move_to_end(key)
        if len(self._known) > MAX_KNOWN:
            self.on_gone(self._known.popitem(last=False)[0])


def _tenant_in(start: bytes) -> str | None:
    """Return the tenant in the header; None for bytes that are not a record."""
    try:
        return decode_header(start).tenant
    except CorruptRecordError:
        return None
