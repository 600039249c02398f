"""The memory tier: blocks in an arena, evicted in order of use, pinned in place for their readers.

Checksums are not verified here: readers verify them, and slower tiers did on the way in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, Reservation, TierState
from pagewire_kvstore.tiers.ledger import Ledger
from pagewire_shared.errors import InvalidRequestError, OverloadedError, StartupError
from pagewire_shared.kv.arena import Arena
from pagewire_shared.kv.extents import GRANULE_BYTES, Extents


@dataclass(frozen=True, slots=True)
class Pin:
    """A block that stays in place until `unpin`, also when it is removed from the tier.

    Attributes:
        record: The block; its payload is a view of the arena.
        offset: Where the payload starts in the arena, in bytes.
    """

    record: BlockRecord
    offset: int


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """A block that a load found.

    Attributes:
        tier: Tier that had the block: "memory", "disk" or "redis".
        pin: Pin of the block in the arena; None when the block is not there.
    """

    record: BlockRecord
    tier: str
    pin: Pin | None = None


class _Place(NamedTuple):
    offset: int
    num_bytes: int
    tenant: str
    checksum: int


class MemoryTier:
    """Evicts the least recently used blocks; leased blocks and those with a Pin stay.

    Used from one thread. Capacity and quotas count the whole granules that blocks take.

    Args:
        capacity_bytes: Size of the arena; rounded down to whole granules.
        quota: Bound of a tenant in bytes; None for no bound of its own.
        is_pinned: Whether a lease keeps a block.
        path: File for other processes of the host to map, see Arena; None for private memory.

    Raises:
        StartupError: The arena cannot be allocated.
    """

    def __init__(
        self,
        capacity_bytes: int,
        quota: Callable[[str], int | None],
        is_pinned: Callable[[BlockKey], bool],
        path: Path | None = None,
    ) -> None:
        if capacity_bytes < GRANULE_BYTES:
            raise StartupError(
                f"the memory tier needs at least {GRANULE_BYTES} bytes, not {capacity_bytes}"
            )
        capacity_bytes -= capacity_bytes % GRANULE_BYTES
        self._is_pinned = is_pinned
        self._ledger = Ledger(capacity_bytes, quota)
        self._extents = Extents(capacity_bytes)
        self._places: dict[BlockKey, _Place] = {}
        # By offset: references of pins, and the pinned extents whose block was removed.
        self._num_refs: dict[int, int] = {}
        self._removed_while_pinned: set[int] = set()
        self._tickets: set[BlockKey] = set()
        self._num_tickets = 0
        self._num_hits = 0
        self._num_misses = 0
        self._num_evicted = 0
        self._arena = Arena(capacity_bytes, path)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._places

    def keys(self) -> list[BlockKey]:
        """Return all keys, least recently used first."""
        return [key for key in self._ledger.keys() if key in self._places]  # noqa: SIM118

    def tenant_keys(self, tenant: str) -> list[BlockKey]:
        """Return the keys of a tenant, least recently used first."""
        return [key for key in self._ledger.tenant_keys(tenant) if key in self._places]

    def fits(self, tenant: str, num_bytes: int) -> bool:
        """Return whether a payload of that size fits the quota of the tenant."""
        return self._extents.rounded(num_bytes) <= self._ledger.bound_of(tenant)

    def put(self, record: BlockRecord) -> list[BlockKey]:
        """Copy a block in; a block that is there already only becomes the most recently used.

        Returns:
            Keys evicted for it. An error evicts nothing.

        Raises:
            InvalidRequestError: The block is empty, or larger than the tier or the tenant's quota.
            OverloadedError: Pinned blocks and readers leave no room at the moment.
        """
        key, tenant = record.key, record.tenant
        payload = memoryview(record.payload).cast("B")
        if key in self._places:
            self._ledger.touch(key)
            return []
        offset, evicted = self._make_room(key, payload.nbytes, tenant)
        self._arena.write(offset, payload)
        self._ledger.add(key, self._extents.rounded(payload.nbytes), tenant)
        self._places[key] = _Place(offset, payload.nbytes, tenant, record.checksum)
        return evicted

    def reserve(
        self, key: BlockKey, num_bytes: int, tenant: str
    ) -> tuple[Reservation, list[BlockKey]]:
        """Reserve an extent for a block that a peer will write; return it and the evicted keys.

        The extent counts towards the tenant's quota. Raises as `put` does.
        """
        self._num_tickets += 1
        # A layout id has 16 bytes, so no block has this key.
        ticket = BlockKey(b"reserved", self._num_tickets, key.name)
        offset, evicted = self._make_room(ticket, num_bytes, tenant)
        self._ledger.add(ticket, self._extents.rounded(num_bytes), tenant)
        self._tickets.add(ticket)
        view = self._arena.view(offset, num_bytes)
        reservation = Reservation(key=key, tenant=tenant, offset=offset, view=view, ticket=ticket)
        return reservation, evicted

    def fill(self, reservation: Reservation, payload: bytes | memoryview) -> None:
        """Copy a payload to a reserved extent; any thread may call it."""
        self._arena.write(reservation.offset, payload)

    def commit(self, reservation: Reservation, checksum: int) -> bool:
        """Store the block of a reservation. When the tier has the block already, abandon the
        reservation and return False."""
        key, num_bytes = reservation.key, reservation.view.nbytes
        if key in self._places:
            self._ledger.touch(key)
            self.abandon(reservation)
            return False
        self._end(reservation)
        self._ledger.add(key, self._extents.rounded(num_bytes), reservation.tenant)
        self._places[key] = _Place(reservation.offset, num_bytes, reservation.tenant, checksum)
        return True

    def abandon(self, reservation: Reservation) -> None:
        """Free the extent of a reservation."""
        self._end(reservation)
        self._extents.free(reservation.offset)

    def _end(self, reservation: Reservation) -> None:
        assert reservation.ticket in self._tickets, "the reservation has ended"
        self._tickets.remove(reservation.ticket)
        self._ledger.remove(reservation.ticket)

    def _make_room(self, key: BlockKey, num_bytes: int, tenant: str) -> tuple[int, list[BlockKey]]:
        """Evict blocks until an extent is free; return its offset and the evicted keys."""
        if not num_bytes:
            raise InvalidRequestError("a block without bytes cannot be stored")
        size = self._extents.rounded(num_bytes)
        if size > self._ledger.bound_of(tenant):
            raise InvalidRequestError(
                f"a block of {num_bytes} bytes takes {size} in memory; tenant {tenant!r}"
                f" may hold {self._ledger.bound_of(tenant)}"
            )
        evicted = self._choose_evicted(key, size, tenant)
        if evicted is None:
            raise OverloadedError(
                f"pinned blocks and readers leave no {size} bytes of memory for tenant {tenant!r}"
            )
        for other in evicted:
            self.remove(other)
        self._num_evicted += len(evicted)
        offset = self._extents.allocate(size)
        assert offset is not None, "chosen blocks made no room"
        return offset, evicted

    def _choose_evicted(self, key: BlockKey, size: int, tenant: str) -> list[BlockKey] | None:
        """Return blocks to evict, first for enough bytes, then for one extent of that size; None
        when eviction cannot make the room."""
        evicted = self._ledger.room_for(key, size, tenant, self._must_stay)
        if evicted is None:
            return None
        places = self._places
        if any(self._extents.rounded(places[other].num_bytes) >= size for other in evicted):
            return evicted
        chosen_already = set(evicted)
        in_order_of_use = self._ledger.keys()
        keys_by_offset: dict[int, BlockKey] = {}

        def offsets() -> Iterator[int]:
            for other in in_order_of_use:
                if other not in chosen_already and not self._must_stay(other):
                    keys_by_offset[places[other].offset] = other
                    yield places[other].offset

        freed = [places[other].offset for other in evicted]
        further = self._extents.choose_to_free(size, freed, offsets())
        if further is None:
            return None
        return evicted + [keys_by_offset[offset] for offset in further]

    def _must_stay(self, key: BlockKey) -> bool:
        if key in self._tickets:
            return True
        # Evicting a block with a Pin frees no memory.
        return self._places[key].offset in self._num_refs or self._is_pinned(key)

    def get(self, key: BlockKey) -> BlockRecord | None:
        """Return a block and make it the most recently used, or None for a miss.

        Its payload is a view of the arena that the next `put` or `remove` may overwrite; see
        `pin` for longer use.
        """
        place = self._places.get(key)
        if place is None:
            self._num_misses += 1
            return None
        self._num_hits += 1
        self._ledger.touch(key)
        payload = self._arena.view(place.offset, place.num_bytes)
        return BlockRecord(key, place.tenant, payload, place.checksum)

    def pin_promoted(self, key: BlockKey) -> Pin | None:
        """Pin a block like `pin`, but count neither hit nor miss and keep the order of use."""
        place = self._places.get(key)
        return self._pin(key, place) if place is not None else None

    def pin(self, key: BlockKey) -> Pin | None:
        """Return a block like `get`; its payload does not change until `unpin`, called once."""
        place = self._places.get(key)
        if place is None:
            self._num_misses += 1
            return None
        self._num_hits += 1
        self._ledger.touch(key)
        return self._pin(key, place)

    def count_miss(self) -> None:
        """Count a load that was not tried here."""
        self._num_misses += 1

    def _pin(self, key: BlockKey, place: _Place) -> Pin:
        offset = place.offset
        self._num_refs[offset] = self._num_refs.get(offset, 0) + 1
        payload = self._arena.view(offset, place.num_bytes)
        return Pin(BlockRecord(key, place.tenant, payload, place.checksum), offset)

    def add_ref(self, pin: Pin) -> None:
        """Add a reference to a pinned block; `unpin` must then be called once more."""
        self._num_refs[pin.offset] += 1

    def unpin(self, pin: Pin) -> None:
        """Drop one reference. The last one frees the memory of a block that was removed."""
        offset = pin.offset
        assert offset in self._num_refs, f"nobody reads at {offset}"
        self._num_refs[offset] -= 1
        if self._num_refs[offset]:
            return
        del self._num_refs[offset]
        if offset in self._removed_while_pinned:
            self._removed_while_pinned.remove(offset)
            self._extents.free(offset)

    def remove(self, key: BlockKey) -> bool:
        """Remove a block, also a leased one; return False when the tier does not have it."""
        place = self._places.pop(key, None)
        if place is None:
            return False
        self._ledger.remove(key)
        if place.offset in self._num_refs:
            self._removed_while_pinned.add(place.offset)
        else:
            self._extents.free(place.offset)
        return True

    def stats(self) -> TierState:
        """Return the state of the tier. Bytes are whole granules, with reservations and with
        removed blocks that are still pinned."""
        capacity_bytes = self._extents.capacity_bytes
        return TierState(
            tier="memory",
            num_blocks=len(self._places),
            used_bytes=capacity_bytes - self._extents.free_bytes,
            capacity_bytes=capacity_bytes,
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_evicted=self._num_evicted,
        )

    def close(self) -> None:
        """Release the memory and remove the file; see Arena.close."""
        self._arena.close()
