"""Room in shared memory that a peer writes a block to. Plain data."""

from dataclasses import dataclass

from pagewire_kvstore.blocks.block_key import BlockKey


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
