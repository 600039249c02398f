"""Layers that were copied out and wait to be sent, as plain data."""

from dataclasses import dataclass

from pagewire_shared.kv.layers_convert import LayerRange


@dataclass(frozen=True, slots=True)
class StagedLayers:
    """Some layers of some blocks in the staging memory.

    Attributes:
        range: Which.
        offset: Of the region.
        num_bytes: Of the payload.
    """

    range: LayerRange
    offset: int
    num_bytes: int


def follows(first: StagedLayers, second: StagedLayers) -> bool:
    """Whether `second` holds the next layers of the very blocks of `first`."""
    one, other = first.range, second.range
    return (
        one.first_block == other.first_block
        and one.num_blocks == other.num_blocks
        and one.first_layer + one.num_layers == other.first_layer
    )
