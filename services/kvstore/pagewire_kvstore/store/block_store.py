"""The block store: writes blocks to memory and the slower tiers, loads them, and logs changes.

The store runs on one event loop; the streams package reads and writes messages.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Sequence

from pagewire_kvstore.blocks.event_log import BlockChange, EventLog
from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, Reservation, TierState
from pagewire_kvstore.store.merged_loads import MergedLoads
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_kvstore.tiers.memory import FoundBlock, MemoryTier, Pin
from pagewire_kvstore.tiers.slow_tier import SlowTier
from pagewire_shared.errors import InvalidRequestError, OverloadedError, PagewireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NameSet


class BlockStore:
    """Blocks over several tiers; `run` must be running while the store is used.

    A block is written to memory and through to every slower tier. A hit in a slower tier is
    promoted to memory and the tiers between. When a tier fails, only its own blocks are missing.
    """

    def __init__(self, memory: MemoryTier, slower: Sequence[SlowTier], events: EventLog) -> None:
        """Args:
        memory: The fastest tier.
        slower: Slower tiers, the fastest first.
        events: Log of later changes; blocks found at the start are in `names` only.
        """
        self._memory = memory
        self._slower = slower
        self._events = events
        # Names as a watcher has them that applied all events.
        self._names = NameSet()
        self._loads = MergedLoads(self._load, memory.add_ref, memory.unpin)
        self._num_deletions = 0
        self._deleting: list[str] = []
        for tier in slower:
            tier.on_gone = self._log_if_removed
            tier.on_found = self._log_stored
            self._names.add_all(key.name for key in tier.keys())  # noqa: SIM118

    def holds(self, key: BlockKey) -> bool:
        """Return whether a tier has the block; only a load verifies its bytes."""
        return key in self._memory or any(tier.holds(key) for tier in self._slower)

    def names(self) -> list[BlockName]:
        """Return the names of all blocks, each once, as the events so far give them."""
        return list(self._names)

    def quota_fits(self, tenant: str, num_bytes: int) -> bool:
        """Return whether a payload of that size fits the quota of the tenant."""
        return self._memory.fits(tenant, num_bytes)

    def put(self, records: Sequence[BlockRecord]) -> None:
        """Store all groups of one block, and queue them for the slower tiers.

        Args:
            records: One per group; their payloads must never change.

        Raises:
            OverloadedError: Pinned blocks and readers leave no room; no group is stored.
            InvalidRequestError: A group is larger than memory, or than its tenant's quota.
        """
        assert len({record.key.name for record in records}) == 1, "the groups of one block"
        stored: list[BlockKey] = []
        evicted: list[BlockKey] = []
        try:
            for record in records:
                is_new = record.key not in self._memory
                evicted += self._memory.put(record)
                if is_new:
                    stored.append(record.key)
            if any(record.key not in self._memory for record in records):
                raise OverloadedError("there is no room for all groups of a block at a time")
        except PagewireError:
            for key in stored:
                self._memory.remove(key)
            self._log_removed(evicted + stored)
            raise
        for record in records:
            for tier in self._slower:
                tier.offer(record)
        self._log_stored([records[0].key])
        self._log_removed(evicted)

    def reserve(self, key: BlockKey, num_bytes: int, tenant: str) -> Reservation | None:
        """Reserve an extent for a group that a peer will write to shared memory; None without room.

        A reservation ends with `commit` or `abandon`.
        """
        try:
            reservation, evicted = self._memory.reserve(key, num_bytes, tenant)
        except (OverloadedError, InvalidRequestError):
            return None
        self._log_removed(evicted)
        return reservation

    def fill(
        self, reservations: Sequence[Reservation], payloads: Sequence[bytes | memoryview]
    ) -> None:
        """Copy payloads to reserved extents; any thread may call it, and others run meanwhile."""
        for reservation, payload in zip(reservations, payloads, strict=True):
            self._memory.fill(reservation, payload)

    def commit(self, reservations: Sequence[Reservation], checksums: Sequence[int]) -> None:
        """Store the groups of one block, and queue them for the slower tiers.

        Args:
            reservations: Extents with the payloads, one per group.
            checksums: CRC-32C of each payload.
        """
        assert len({reservation.key.name for reservation in reservations}) == 1, "of one block"
        for reservation, checksum in zip(reservations, checksums, strict=True):
            if self._memory.commit(reservation, checksum):
                self._send_on(reservation.key)
        self._log_stored([reservations[0].key])

    def abandon(self, reservation: Reservation) -> None:
        """Free the extent of a group that will not be written."""
        self._memory.abandon(reservation)

    def is_in_memory(self, key: BlockKey) -> bool:
        """Return whether a load finds the block in memory."""
        return key in self._memory

    @contextlib.asynccontextmanager
    async def load(self, key: BlockKey) -> AsyncIterator[FoundBlock | None]:
        """Yield a block whose payload does not change inside the `with`, or None for a miss.

        Concurrent loads of one block from a slower tier share one read.
        """
        pin = self._memory.pin(key)
        if pin is not None:
            loaded: FoundBlock | None = FoundBlock(pin.record, "memory", pin)
        else:
            loaded = await self._loads.load(key, self._num_deletions)
        try:
            yield loaded
        finally:
            if loaded is not None and loaded.pin is not None:
                self._memory.unpin(loaded.pin)

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return the blocks that a load may find, also those that other stores put into Redis.

        Each tier is asked once for all blocks that no faster tier has.
        """
        found = {key for key in keys if self.holds(key)}
        for tier in self._slower:
            rest = [key for key in keys if key not in found]
            if rest:
                found |= await tier.find(rest)
        return found

    def count_miss(self, key: BlockKey) -> None:
        """Count a load that was not made, because `find` did not find the block."""
        self._memory.count_miss()
        for tier in self._slower:
            tier.count_miss(key)

    async def delete_tenant(self, tenant: str) -> int:
        """Remove all blocks of a tenant, also pinned ones; return the number of names removed.

        Raises TierUnavailableError when a tier does not work: its blocks may be left, and the other
        tiers have removed theirs.
        """
        keys = set(self._memory.tenant_keys(tenant))
        for key in keys:
            self._memory.remove(key)
        error: TierUnavailableError | None = None
        self._num_deletions += 1
        self._deleting.append(tenant)
        try:
            for tier in self._slower:
                try:
                    keys.update(await tier.delete_tenant(tenant))
                except TierUnavailableError as failure:
                    error = failure
        finally:
            self._deleting.remove(tenant)
            # Reads under way may have read their block before it was deleted.
            self._num_deletions += 1
            self._log_removed(keys)
        if error is not None:
            raise error
        return len({key.name for key in keys})

    def states(self) -> list[TierState]:
        """State of every tier, the fastest first."""
        return [self._memory.stats(), *(tier.state() for tier in self._slower)]

    def faults(self) -> dict[str, str]:
        """Reasons of the tiers that do not work at the moment, by tier; empty when all work."""
        return {state.tier: state.fault for state in self.states() if state.fault is not None}

    async def run(self) -> None:
        """Run the background work of the slower tiers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for tier in self._slower:
                tasks.create_task(tier.run())

    async def wait_written(self) -> None:
        """Wait until every put block is in the slower tiers, or was dropped."""
        for tier in self._slower:
            await tier.wait_written()

    def close(self) -> None:
        """Release memory, threads and files; `run` must have ended."""
        for tier in self._slower:
            tier.close()
        self._memory.close()

    async def _load(self, key: BlockKey) -> FoundBlock | None:
        num_deletions = self._num_deletions
        for index, tier in enumerate(self._slower):
            record = tier.queued(key)
            name = "memory" if record is not None else tier.name
            if record is None:
                record = await tier.get(key)
            if record is None or record.tenant in self._deleting:
                continue
            if num_deletions != self._num_deletions:
                # The tenant may have been deleted meanwhile: promotion would restore its block.
                return FoundBlock(record, name)
            pin = self._promote(record, self._slower[:index])
            return FoundBlock(record if pin is None else pin.record, name, pin)
        return None

    def _promote(self, record: BlockRecord, between: Sequence[SlowTier]) -> Pin | None:
        for tier in between:
            tier.offer(record)
        # Without room in memory, the next load reads the slower tier again.
        with contextlib.suppress(OverloadedError, InvalidRequestError):
            evicted = self._memory.put(record)
            self._log_stored([record.key])
            pin = self._memory.pin_promoted(record.key)
            self._log_removed(evicted)
            return pin
        return None

    def _send_on(self, key: BlockKey) -> None:
        """Queue a block in memory for the slower tiers; each tier pins it until it is written."""
        for tier in self._slower:
            pin = self._memory.pin_promoted(key)
            if pin is not None:
                tier.offer(pin.record, functools.partial(self._memory.unpin, pin))

    def _log_stored(self, keys: Sequence[BlockKey]) -> None:
        new = dict.fromkeys(key.name for key in keys if key.name not in self._names)
        if new:
            self._names.add_all(new)
            self._events.add(BlockChange.STORED, list(new))

    def _log_removed(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            self._log_if_removed(key)

    def _log_if_removed(self, key: BlockKey) -> None:
        if key.name in self._names and not self.holds(key):
            self._names.discard_all((key.name,))
            self._events.add(BlockChange.REMOVED, [key.name])
