"""The blocks of a store over its tiers: memory over slower ones. Decides where blocks go and says
what became of them; knows no streams. Used from one event loop."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterable, Sequence

from pagewire_kvstore.blocks.event_log import BlockChange, EventLog
from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, Reservation, TierState
from pagewire_kvstore.store.merged_loads import MergedLoads
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_kvstore.tiers.loaded import FoundBlock
from pagewire_kvstore.tiers.memory import Hold, MemoryTier
from pagewire_kvstore.tiers.slow_tier import SlowTier
from pagewire_shared.errors import InvalidRequestError, OverloadedError, PagewireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NameSet


class BlockStore:
    """Every block goes to memory, and through to the slower tiers; a hit in one of them comes back
    to memory, and to those between. A tier that fails costs nothing but what it holds. `run` it
    while it is used."""

    def __init__(self, memory: MemoryTier, slower: Sequence[SlowTier], events: EventLog) -> None:
        """Args: `slower` has the fastest first; `events` is told what is there at the start."""
        self._memory = memory
        self._slower = slower
        self._events = events
        # What the events said last is what is here.
        self._names = NameSet()
        self._loads = MergedLoads(self._load, memory.add_ref, memory.unpin)
        self._num_deletions = 0
        self._deleting: list[str] = []
        for tier in slower:
            tier.on_gone = self._tell_if_gone
            tier.on_found = self._tell_stored
            self._names.add_all(key.name for key in tier.keys())  # noqa: SIM118

    def holds(self, key: BlockKey) -> bool:
        """Return whether a load would be tried; only the load says whether it is whole."""
        return key in self._memory or any(tier.holds(key) for tier in self._slower)

    def names(self) -> list[BlockName]:
        """Return the names of all blocks, each once: what the events amount to so far."""
        return list(self._names)

    def quota_fits(self, tenant: str, num_bytes: int) -> bool:
        """Return whether a tenant may hold a payload of that size at all."""
        return self._memory.fits(tenant, num_bytes)

    def put(self, records: Sequence[BlockRecord]) -> None:
        """Make the groups of one block loadable, and send them on to the slower tiers.

        Args:
            records: Their payloads stay as they are for good.

        Raises:
            OverloadedError: Pinned blocks and readers leave no room; none of them is stored.
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
            self._tell_all_if_gone(evicted + stored)
            raise
        for record in records:
            for tier in self._slower:
                tier.offer(record)
        self._tell_stored([records[0].key])
        self._tell_all_if_gone(evicted)

    def reserve(self, key: BlockKey, num_bytes: int, tenant: str) -> Reservation | None:
        """Set room aside for a group that a peer will write to shared memory itself; None when
        there is none. It ends with `commit` or `abandon`."""
        try:
            reservation, evicted = self._memory.reserve(key, num_bytes, tenant)
        except (OverloadedError, InvalidRequestError):
            return None
        self._tell_all_if_gone(evicted)
        return reservation

    def fill(
        self, reservations: Sequence[Reservation], payloads: Sequence[bytes | memoryview]
    ) -> None:
        """Copy payloads to room set aside; any thread may, and other threads run meanwhile."""
        for reservation, payload in zip(reservations, payloads, strict=True):
            self._memory.fill(reservation, payload)

    def commit(self, reservations: Sequence[Reservation], checksums: Sequence[int]) -> None:
        """Make the groups of one block loadable, each with the checksum its bytes were found to
        have, and send them on to the slower tiers."""
        assert len({reservation.key.name for reservation in reservations}) == 1, "of one block"
        for reservation, checksum in zip(reservations, checksums, strict=True):
            if self._memory.commit(reservation, checksum):
                self._send_on(reservation.key)
        self._tell_stored([reservations[0].key])

    def abandon(self, reservation: Reservation) -> None:
        """Give back the room of a group that will not come."""
        self._memory.abandon(reservation)

    def is_in_memory(self, key: BlockKey) -> bool:
        """Return whether a load would wait for no other tier."""
        return key in self._memory

    @contextlib.asynccontextmanager
    async def load(self, key: BlockKey) -> AsyncIterator[FoundBlock | None]:
        """Yield a block whose payload stays as it is inside the `with`, or None for a miss.

        Loads of one block that wait for a slower tier at the same time are one read there.
        """
        hold = self._memory.hold(key)
        if hold is not None:
            loaded: FoundBlock | None = FoundBlock(hold.record, "memory", hold)
        else:
            loaded = await self._loads.load(key, self._num_deletions)
        try:
            yield loaded
        finally:
            if loaded is not None and loaded.hold is not None:
                self._memory.unpin(loaded.hold)

    async def find(self, keys: Sequence[BlockKey]) -> set[BlockKey]:
        """Return which of these blocks a load would be tried for, those included that only a tier
        shared with other stores knows; such a tier is asked once for all."""
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
        """Remove all blocks of a tenant, pinned ones, too, and return how many (names) there were.

        Raises TierUnavailableError when a tier does not work, so that some may be left there; from
        the others they are gone then.
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
            # What is read by now may have been read before it was deleted.
            self._num_deletions += 1
            self._tell_all_if_gone(keys)
        if error is not None:
            raise error
        return len({key.name for key in keys})

    def states(self) -> list[TierState]:
        """State of every tier, the fastest first."""
        return [self._memory.stats(), *(tier.state() for tier in self._slower)]

    def faults(self) -> dict[str, str]:
        """Why tiers do not work at the moment, by name; empty when all do."""
        return {state.tier: state.fault for state in self.states() if state.fault is not None}

    async def run(self) -> None:
        """Write through and watch the tiers, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for tier in self._slower:
                tasks.create_task(tier.run())

    async def wait_written(self) -> None:
        """Wait until all that was put is in the slower tiers, or was dropped."""
        for tier in self._slower:
            await tier.wait_written()

    def close(self) -> None:
        """Give memory, threads and files back; `run` has ended."""
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
                # It may be of a tenant that was just deleted, and would come back to stay.
                return FoundBlock(record, name)
            hold = self._promote(record, self._slower[:index])
            return FoundBlock(record if hold is None else hold.record, name, hold)
        return None

    def _promote(self, record: BlockRecord, between: Sequence[SlowTier]) -> Hold | None:
        for tier in between:
            tier.offer(record)
        # Without room in memory it comes from there again the next time.
        with contextlib.suppress(OverloadedError, InvalidRequestError):
            evicted = self._memory.put(record)
            self._tell_stored([record.key])
            hold = self._memory.hold_promoted(record.key)
            self._tell_all_if_gone(evicted)
            return hold
        return None

    def _send_on(self, key: BlockKey) -> None:
        """Write a block through whose bytes lie in memory only, where they are held meanwhile."""
        for tier in self._slower:
            hold = self._memory.hold_promoted(key)
            if hold is not None:
                tier.offer(hold.record, functools.partial(self._memory.unpin, hold))

    def _tell_stored(self, keys: Sequence[BlockKey]) -> None:
        new = dict.fromkeys(key.name for key in keys if key.name not in self._names)
        if new:
            self._names.add_all(new)
            self._events.add(BlockChange.STORED, list(new))

    def _tell_all_if_gone(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            self._tell_if_gone(key)

    def _tell_if_gone(self, key: BlockKey) -> None:
        if key.name in self._names and not self.holds(key):
            self._names.discard_all((key.name,))
            self._events.add(BlockChange.REMOVED, [key.name])
