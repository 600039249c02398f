"""The paged KV tensors: allocated once, written and gathered by block.

On CPUs each layer's keys and values lie by themselves, as the kernels read them. On CUDA each block
lies whole, its layers one after the other, so it moves to and from hosts in one piece
(docs/adr/0018-blocks-lie-whole-on-cuda.md).
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagewire_worker.host.zero_memory import TouchThread, zeros
from pagewire_worker.kv.scaled_rows import SCALE_BYTES, SCALED, from_rows, row_size, to_rows


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers of a model with a block table of their own.

    `window` is the number of positions that a token attends to in all of them, itself included;
    None when a layer reads all positions.
    """

    layers: tuple[int, ...]
    window: int | None = None


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Cache of a model per position: keys and values, each [kv_heads, head_dim], in every layer.

    Attributes:
        window: As in LayerGroup, of all layers; read where there are no `groups`.
        groups: The layers by cache group, those without a window first. Empty: one group of all.
        latent_dim: Values are the first numbers of keys, so many, and take no memory of their own
            (docs/adr/0039-latent-cache.md); None for values of the shape of keys.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None
    groups: tuple[LayerGroup, ...] = ()
    latent_dim: int | None = None

    @property
    def num_parts(self) -> int:
        """Tensors of a layer that have memory: keys and values, or latents alone."""
        return 2 if self.latent_dim is None else 1

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        """The cache groups, in block table order."""
        return self.groups or (LayerGroup(tuple(range(self.num_layers)), self.window),)

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each cache group."""
        return tuple(group.window for group in self.layer_groups)

    @property
    def num_stored_layers(self) -> int:
        """Layers of one block: those of the largest group."""
        return max(len(group.layers) for group in self.layer_groups)

    def blocks_of(self, num_blocks: int, block_size: int) -> int:
        """Return the blocks, over all groups, of a sequence that is `num_blocks` long.

        A cache of one group has room for all of them, whatever its window.
        """
        if not self.groups:
            return num_blocks
        return sum(
            num_blocks if window is None else min(num_blocks, -(-window // block_size) + 2)
            for window in self.windows
        )

    def longest(self, num_blocks: int, block_size: int) -> int:
        """Return the tokens of the longest sequence that `num_blocks` hold."""
        if not self.groups:
            return num_blocks * block_size
        lengths = range(num_blocks + 1)
        found = bisect.bisect_right(
            lengths, num_blocks, key=lambda n: self.blocks_of(n, block_size)
        )
        return (found - 1) * block_size


@dataclass(frozen=True, slots=True)
class CacheGroup:
    """Layers that share one block table; see CacheGroup in layout.proto.

    `window` is the number of positions that a token attends to, itself included; None for all.
    """

    num_layers: int
    block_size: int
    bytes_per_block: int
    dtype: str
    window: int | None = None
    is_latent: bool = False


@dataclass(frozen=True, slots=True)
class CacheScales:
    """What the 8-bit floats of a layer's cache are multiplied with.

    `both` has the two numbers on the device, float32 [2].
    """

    key: float
    value: float
    both: Tensor


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Keys and values of one layer, each [num_blocks, block_size, kv_heads, head_dim].

    If blocks lie whole, these are views: contiguous within a block, with gaps between blocks.
    Layers of different cache groups share this memory, each in the blocks of its own `group`.
    With `is_latent` values are a view of the first numbers of keys. Of int8, a head's numbers are a
    row with a scale (scaled_rows.py), and float32 when they are gathered. `scales` are those of
    8-bit floats; None for 1.
    """

    key: Tensor
    value: Tensor
    group: int = 0
    is_latent: bool = False
    scales: CacheScales | None = None

    @classmethod
    def of(cls, parts: Sequence[Tensor], latent_dim: int | None) -> "LayerCache":
        """Return the cache of a layer with these `parts`; see CacheShape for `latent_dim`."""
        if latent_dim is None:
            key, value = parts
            return cls(key, value)
        (key,) = parts
        return cls(key, key[..., :latent_dim], is_latent=True)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors that have memory of their own."""
        return (self.key,) if self.is_latent else (self.key, self.value)

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.key.shape[1]

    @property
    def num_kv_heads(self) -> int:
        """KV heads."""
        return self.key.shape[2]

    @property
    def value_dim(self) -> int:
        """Numbers of a value."""
        size = self.value.shape[-1]
        return size - SCALE_BYTES if self.has_scales else size

    @property
    def has_scales(self) -> bool:
        """Whether numbers are int8 with scales."""
        return self.key.dtype == SCALED

    def write(
        self,
        slot_mapping: Tensor,
        key: Tensor,
        value: Tensor | None,
        faults: Tensor | None = None,
    ) -> None:
        """Store [tokens, kv_heads, head_dim] at slot_mapping [tokens], counted in positions.

        Latents have no `value`. With `faults` [tokens] int64, values that are not finite become 0
        and their tokens are set.
        """
        states = (key,) if value is None else (key, value)
        for part, given in zip(self.parts, states, strict=True):
            state = given if faults is None else _finite(given, faults)
            state = to_rows(state) if self.has_scales else state
            if part.is_contiguous():
                part.flatten(0, 1).index_copy_(0, slot_mapping, state)
            else:
                part.index_put_(self._places(slot_mapping), state)

    def gather_positions(self, slot_mapping: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values at slot_mapping [n], each [n, kv_heads, head_dim]."""
        if self.key.is_contiguous():
            return (
                self._numbers(self.key.flatten(0, 1).index_select(0, slot_mapping)),
                self._numbers(self.value.flatten(0, 1).index_select(0, slot_mapping)),
            )
        blocks, offsets = self._places(slot_mapping)
        return self._numbers(self.key[blocks, offsets]), self._numbers(self.value[blocks, offsets])

    def gather(self, blocks: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of `blocks` [n], each [n * block_size, kv_heads, head_dim]."""
        return (
            self._numbers(self.key.index_select(0, blocks).flatten(0, 1)),
            self._numbers(self.value.index_select(0, blocks).flatten(0, 1)),
        )

    def _numbers(self, gathered: Tensor) -> Tensor:
        return from_rows(gathered) if self.has_scales else gathered

    def _places(self, slot_mapping: Tensor) -> tuple[Tensor, Tensor]:
        """Return blocks and offsets within them.

        If blocks lie whole, flattening the view would copy it.
        """
        return slot_mapping // self.block_size, slot_mapping % self.block_size


def _finite(side: Tensor, faults: Tensor) -> Tensor:
    """Return `side` with 0 for values that are not finite; set their `faults` [tokens]."""
    if side.device.type == "cpu" and math.isfinite(side.sum(dtype=torch.float64).item()):
        return side  # a value that is not finite would make the sum not finite
    is_finite = side.isfinite()
    faults.logical_or_(~is_finite.flatten(1).all(dim=1))
    return side.where(is_finite, 0.0)


class KvCache:
    """The blocks of all layers, in one pool that the cache groups share.

    A block holds as many layers as the largest group has; layer i of every group lies at place i.

    Args:
        shape: Shape of the cache per position.
        has_whole_blocks: Whether each block's layers lie together; None to use the device's way.

    Attributes:
        shape: Of the arguments.
        layers: Keys and values of each layer of the model.
        stored: Keys and values of each layer of a block; for one group the same.
        on_copy: Called with the arguments of `copy_blocks` before it copies; None for nothing.
        blocks: [num_blocks, stored layers, parts, block_size, kv_heads, head_dim], keys before
            values, or latents; None if layers lie by themselves.
    """

    def __init__(
        self,
        *,
        shape: CacheShape,
        num_blocks: int,
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
        has_whole_blocks: bool | None = None,
    ) -> None:
        size = (block_size, shape.num_kv_heads, row_size(shape.head_dim, dtype))
        num_stored, num_parts = shape.num_stored_layers, shape.num_parts
        self.blocks: Tensor | None = None
        self.on_copy: Callable[[Tensor, Tensor], None] | None = None
        self._touching: TouchThread | None = None
        stored: Sequence[Sequence[Tensor]]
        if device.type == "cuda" if has_whole_blocks is None else has_whole_blocks:
            whole = (num_blocks, num_stored, num_parts, *size)
            [self.blocks] = _zeros([whole], device, dtype)
            stored = [layer.unbind(1) for layer in self.blocks.unbind(1)]
        else:
            arrays = _zeros([(num_blocks, *size)] * (num_stored * num_parts), device, dtype)
            stored = [
                arrays[num_parts * place : num_parts * (place + 1)] for place in range(num_stored)
            ]
        self.stored = [LayerCache.of(parts, shape.latent_dim) for parts in stored]
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.shape = shape
        places = {
            layer: replace(self.stored[place], group=number)
            for number, group in enumerate(shape.layer_groups)
            for place, layer in enumerate(group.layers)
        }
        self.layers: Sequence[LayerCache] = [places[layer] for layer in sorted(places)]
        # Computed layers of the model with which each stored layer is whole.
        ends = [0] * shape.num_stored_layers
        for group in shape.layer_groups:
            for place, layer in enumerate(group.layers):
                ends[place] = max(ends[place], layer + 1)
        self._ends = [max(ends[: place + 1]) for place in range(len(ends))]
        self.bytes_per_block = bytes_per_block(shape, block_size, dtype)

    def touch(self) -> None:
        """Let the system make the pages of blocks in main memory, in the background."""
        if self.device.type == "cpu":
            parts = [part for layer in self.stored for part in layer.parts]
            self._touching = TouchThread(parts if self.blocks is None else [self.blocks])

    def stop_touching(self) -> None:
        """End what `touch` began, before the blocks are dropped."""
        if self._touching is not None:
            self._touching.stop()

    @property
    def device(self) -> torch.device:
        """Device of the blocks."""
        return self.layers[0].key.device

    @property
    def has_scales(self) -> bool:
        """Whether numbers are int8 with scales (scaled_rows.py)."""
        return self.layers[0].has_scales

    @property
    def num_groups(self) -> int:
        """Cache groups."""
        return len(self.shape.layer_groups)

    def num_whole(self, num_computed: int) -> int:
        """Return how many stored layers are whole, in blocks of every group, once the first
        `num_computed` layers of the model are computed."""
        return bisect.bisect_right(self._ends, num_computed)

    def set_scales(self, scales: Sequence[tuple[float, float]]) -> None:
        """Let the 8-bit floats of each layer stand for themselves times its (key, value) scales."""
        self.layers = [
            replace(layer, scales=CacheScales(*pair, torch.tensor(pair, device=self.device)))
            for layer, pair in zip(self.layers, scales, strict=True)
        ]

    @property
    def block_bytes(self) -> Tensor | None:
        """The memory of whole blocks, uint8 [num_blocks, bytes_per_block]; else None."""
        return None if self.blocks is None else self.blocks.flatten(1).view(torch.uint8)

    def layout(self) -> list[CacheGroup]:
        """Return the cache groups, in block table order."""
        dtype = str(self.layers[0].key.dtype).removeprefix("torch.")
        return [
            CacheGroup(
                num_layers=len(self.stored),
                block_size=self.block_size,
                bytes_per_block=self.bytes_per_block,
                dtype=dtype,
                window=window,
                is_latent=self.shape.latent_dim is not None,
            )
            for window in self.shape.windows
        ]

    def copy_blocks(self, sources: Tensor, destinations: Tensor) -> None:
        """Copy whole blocks, all reads before all writes; both [n]."""
        if self.on_copy is not None:
            self.on_copy(sources, destinations)
        if self.blocks is not None:
            blocks = movable(self.blocks)
            blocks.index_copy_(0, destinations, blocks.index_select(0, sources))
            return
        for layer in self.stored:
            for side in map(movable, layer.parts):
                side.index_copy_(0, destinations, side.index_select(0, sources))


def movable(side: Tensor) -> Tensor:
    """Return `side` in a type that torch moves on every device: bytes for 8-bit floats."""
    return side.view(torch.uint8) if side.dtype == torch.float8_e4m3fn else side


def _zeros(
    sizes: Sequence[Sequence[int]], device: torch.device, dtype: torch.dtype
) -> list[Tensor]:
    if device.type == "cpu":
        return zeros(sizes, dtype)
    return [torch.zeros(size, device=device, dtype=dtype) for size in sizes]


def bytes_per_block(shape: CacheShape, block_size: int, dtype: torch.dtype) -> int:
    """Return the bytes of one block over its layers, keys and values or latents."""
    row_bytes = row_size(shape.head_dim, dtype) * dtype.itemsize
    per_layer = shape.num_parts * shape.num_kv_heads * row_bytes
    return per_layer * shape.num_stored_layers * block_size
