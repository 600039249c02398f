"""Stored blocks, reservations and tier states as records."""

from dataclasses import dataclass
from typing import NamedTuple

from pagewire_shared.identity.ids import BlockName


class BlockKey(NamedTuple):
    """Names one block of one layout.

    Attributes:
        layout_id: 16 bytes; equal only where model, numerics, cache groups and shard are.
        group: Index of the cache group in its layout.
        name: Content hash of the block; tenant salt and adapter are part of it.
    """

    layout_id: bytes
    group: int
    name: BlockName


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """One layout.

    Attributes:
        layout_id: 16 bytes that differ wherever blocks must not be exchanged: model, numerics,
            cache groups, shard.
        group_bytes: Bytes of one block of each group.
    """

    layout_id: bytes
    group_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One whole block.

    Attributes:
        tenant: Tenant whose quota the block counts towards; empty for the default tenant.
        payload: The bytes of all layers of its group.
        checksum: CRC-32C of the payload.
    """

    key: BlockKey
    tenant: str
    payload: bytes | memoryview
    checksum: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reservation:
    """An extent of the arena that is reserved for one block.

    A peer may go on writing after the reservation was abandoned. The next block in that extent is
    then damaged, and a reader detects this by the checksum.

    Attributes:
        key: Block that the extent is reserved for.
        tenant: Tenant whose quota the extent counts towards.
        offset: Start of the extent in the arena, in bytes.
        view: Bytes of the extent, read-only.
        ticket: Key under which the ledger counts the extent until it becomes a block.
    """

    key: BlockKey
    tenant: str
    offset: int
    view: memoryview
    ticket: BlockKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TierState:
    """State of one tier; see TierStats in kv_store.proto.

    Attributes:
        num_evicted: Blocks removed to make room for others.
        fault: Reason why the tier does not work at the moment; None when it works.
    """

    tier: str
    num_blocks: int
    used_bytes: int
    capacity_bytes: int
    num_hits: int
    num_misses: int
    num_corrupt: int = 0
    num_faults: int = 0
    num_evicted: int = 0
    fault: str | None = None
