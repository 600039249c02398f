"""A layout whose blocks a store keeps. Plain data."""

from dataclasses import dataclass


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
