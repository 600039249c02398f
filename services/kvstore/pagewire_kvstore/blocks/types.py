"""Stored blocks, reservations and tiers as plain data."""

from dataclasses import dataclass
from typing import NamedTuple

from pagewire_shared.identity.ids import BlockName


class BlockKey(NamedTuple):
    """Names one block of one layout.

    Attributes:
        layout_id: 16 bytes; equal only where model, numerics, cache groups and shard are.
        group: Index of the cache group in its layout.
        name: Content name, which tenant salt and adapter are part of.
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
        key: What it is found by.
        tenant: Whose quota it counts towards; empty for the default tenant.
        payload: The bytes of all layers of its group.
        checksum: CRC-32C of the payload.
    """

    key: BlockKey
    tenant: str
    payload: bytes | memoryview
    checksum: int


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """An extent of the arena that no block lies in yet.

    A peer may go on writing to it after it was abandoned: what is stored there by then has its
    checksum and is found to be damaged by whoever loads it.

    Attributes:
        key: Block that is to lie there.
        tenant: Whose quota it counts towards.
        offset: Where it starts in the arena, in bytes.
        view: Its bytes, read-only.
        ticket: What it is counted under until it becomes a block.
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
        fault: Why it does not work at the moment; None when it does.
    """

    tier: str
    num_blocks: int
    used_bytes: int
    capacity_bytes: int
    num_hits: int
    num_misses: int
    num_corrupt: int = 0
    num_faults: int = 0
    fault: str | None = None
