"""The part of each block that a rank has, as views of the bytes of the whole block.

Ranks of a stage have the KV heads of their queries, stages have their layers. Joined, the parts are
the block of a single process, byte for byte: names of equal numerics are equal contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.kv.kv_cache import CacheShape
from pagewire_worker.parallel.plan_shards import kv_heads_of
from pagewire_worker.parallel.plan_stages import layers_of


@dataclass(frozen=True, slots=True)
class BlockPart:
    """What one rank has of every block.

    Attributes:
        layers: Of the stored layers of the whole block.
        heads: Of the KV heads of each.
        is_read: Whether whole blocks have their bytes from this rank. False where a rank before it
            has the same head or the same latents.
    """

    layers: range
    heads: range
    is_read: bool


def block_parts(shape: CacheShape, tp_size: int, num_stages: int) -> tuple[BlockPart, ...]:
    """Return the parts of all ranks, by rank.

    Args:
        shape: Of the cache of the whole model; with several stages it has one cache group.
    """
    return tuple(
        _part(shape, RankTopology.of(rank, tp_size, num_stages))
        for rank in range(tp_size * num_stages)
    )


def _part(shape: CacheShape, place: RankTopology) -> BlockPart:
    heads = kv_heads_of(shape.num_kv_heads, place.tp_rank, place.tp_size)
    before = kv_heads_of(shape.num_kv_heads, place.tp_rank - 1, place.tp_size)
    layers = range(shape.num_stored_layers)
    if place.num_stages > 1:
        layers = layers_of(shape.num_layers, place.stage, place.num_stages)
    return BlockPart(layers, heads, is_read=place.tp_rank == 0 or heads != before)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeBlocks:
    """The form of whole blocks, and what each rank has of them.

    Attributes:
        num_parts: Keys and values, or latents alone.
        row_bytes: Of a key or value of one token and head.
        has_heads_apart: Whether the keys of a head of all tokens of a block lie together, as the
            kernels for CPUs write them; otherwise those of a token of all heads do.
        parts: By rank.
    """

    num_layers: int
    num_parts: int
    block_size: int
    num_heads: int
    row_bytes: int
    has_heads_apart: bool
    parts: Sequence[BlockPart]

    @property
    def bytes_per_layer(self) -> int:
        """Bytes of one layer of one block."""
        return self.num_parts * self.block_size * self.num_heads * self.row_bytes

    @property
    def is_in_first_rank(self) -> bool:
        """Whether rank 0 has whole blocks."""
        return not any(part.is_read for part in self.parts[1:])

    def by_block(self, payloads: Tensor) -> Tensor:
        """Return a view of whole blocks, uint8 [n, bytes], as `by_layer` does."""
        shape = (len(payloads), self.num_layers, self.num_parts, *self._row_shape)
        return payloads.view(shape).permute(1, 2, 0, 3, 4, 5)

    def by_layer(self, payload: Tensor, num_layers: int) -> Tensor:
        """Return a view of layers of n blocks, uint8 [num_layers * n * bytes_per_layer].

        It is [num_layers, parts, n, tokens, heads, row_bytes]; where heads lie apart, [num_layers,
        parts, n, 1, heads, block_size * row_bytes].
        """
        return payload.view(num_layers, self.num_parts, -1, *self._row_shape)

    def layers_of(self, rank: int, first_layer: int, num_layers: int) -> range:
        """Return those of some stored layers that a rank has; none are an empty range."""
        own = self.parts[rank].layers
        first = max(own.start, first_layer)
        return range(first, max(first, min(own.stop, first_layer + num_layers)))

    def part_of(self, rank: int, first_layer: int, whole: Tensor) -> Tensor:
        """Return the view of a rank's part of `whole`, which begins with `first_layer`."""
        layers = self.layers_of(rank, first_layer, len(whole))
        heads = self.parts[rank].heads
        return whole[
            layers.start - first_layer : layers.stop - first_layer,
            ...,
            heads.start : heads.stop,
            :,
        ]

    @property
    def _row_shape(self) -> tuple[int, int, int]:
        if self.has_heads_apart:
            return 1, self.num_heads, self.block_size * self.row_bytes
        return self.block_size, self.num_heads, self.row_bytes
