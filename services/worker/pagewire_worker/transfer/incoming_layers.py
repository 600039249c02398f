"""Tracks the layers of blocks that have come from another worker; holds no payloads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagewire_shared.errors import WireError
from pagewire_shared.kv.layers_convert import LayerRange


@dataclass(frozen=True, slots=True)
class ArrivedLayers:
    """Some layers that have come and were verified.

    Attributes:
        payload: Their bytes, see layer_copy, uint8 [bytes]; not shared with other code.
    """

    range: LayerRange
    payload: "npt.NDArray[np.uint8]"


class IncomingLayers:
    """The layers of one pull: those of a block in order, each once.

    Args:
        bytes_per_layer: Bytes of one layer of one block.
    """

    def __init__(self, num_blocks: int, num_layers: int, bytes_per_layer: int) -> None:
        self._num_layers = num_layers
        self._bytes_per_layer = bytes_per_layer
        self._next_layers = [0] * num_blocks
        self._num_left = num_blocks

    @property
    def is_complete(self) -> bool:
        """Whether all layers of all blocks have come."""
        return self._num_left == 0

    @property
    def has_any(self) -> bool:
        """Whether any layer has come."""
        return any(self._next_layers)

    def num_bytes(self, covered: LayerRange) -> int:
        """Return the payload size of `covered` in bytes."""
        return covered.num_blocks * covered.num_layers * self._bytes_per_layer

    def check(self, covered: LayerRange) -> None:
        """Raise WireError unless these are the next layers of requested blocks."""
        end_block = covered.first_block + covered.num_blocks
        end_layer = covered.first_layer + covered.num_layers
        if not covered.num_blocks or end_block > len(self._next_layers):
            raise WireError(
                f"layers: blocks {covered.first_block} to {end_block} of "
                f"{len(self._next_layers)} that were asked for",
                field="layers.num_blocks",
            )
        if not covered.num_layers or end_layer > self._num_layers:
            raise WireError(
                f"layers: layers {covered.first_layer} to {end_layer} of {self._num_layers}",
                field="layers.num_layers",
            )
        found = set(self._next_layers[covered.first_block : end_block])
        if found != {covered.first_layer}:
            raise WireError(
                f"layers: layer {covered.first_layer} came where {min(found)} is next",
                field="layers.first_layer",
            )

    def add(self, covered: LayerRange) -> None:
        """Mark checked layers as arrived."""
        end_layer = covered.first_layer + covered.num_layers
        for block in range(covered.first_block, covered.first_block + covered.num_blocks):
            self._next_layers[block] = end_layer
        if end_layer == self._num_layers:
            self._num_left -= covered.num_blocks

    def num_complete(self, start: int) -> int:
        """Return the number of complete blocks from `start` on, without gaps."""
        count = 0
        while start + count < len(self._next_layers):
            if self._next_layers[start + count] < self._num_layers:
                break
            count += 1
        return count


def names_of(names: Sequence[bytes], covered: LayerRange) -> Sequence[bytes]:
    """Return the names of the blocks in `covered`."""
    return names[covered.first_block : covered.first_block + covered.num_blocks]
