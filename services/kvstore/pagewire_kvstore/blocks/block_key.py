"""What a stored block is found by. Plain data."""

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
