"""Layers of blocks between the paged cache and flat payloads. Knows no names and no network.

A payload has, per layer, the keys of all its blocks and then their values, each [block_size,
kv_heads, head_dim] per block in the cache's type.
"""

import torch
from torch import Tensor

from pagewire_worker.kv_cache import KvCache, movable


def bytes_per_layer(cache: KvCache) -> int:
    """Return the bytes of one layer of one block, keys and values."""
    return cache.bytes_per_block // len(cache.layers)


def block_index(cache: KvCache, blocks: list[int]) -> Tensor:
    """Return `blocks` as the copies below want them, [n] int64 on the device of the cache."""
    return torch.tensor(blocks, dtype=torch.int64, device=cache.layers[0].key.device)


@torch.inference_mode()
def copy_layers_out(
    cache: KvCache, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
) -> None:
    """Copy layers of the blocks `index` [n] into `payload`, uint8 [num_layers * n * bytes]."""
    for number, part in enumerate(_parts(cache, payload, len(index), num_layers)):
        layer = cache.layers[first_layer + number]
        for side, rows in zip(map(movable, (layer.key, layer.value)), part, strict=True):
            if side.device == rows.device:
                torch.index_select(side, 0, index, out=rows)
            else:
                rows.copy_(side.index_select(0, index))


@torch.inference_mode()
def copy_layers_in(
    cache: KvCache, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
) -> None:
    """Write `payload`, uint8 [num_layers * n * bytes], into layers of the blocks `index` [n]."""
    for number, part in enumerate(_parts(cache, payload, len(index), num_layers)):
        layer = cache.layers[first_layer + number]
        for side, rows in zip(map(movable, (layer.key, layer.value)), part, strict=True):
            side.index_copy_(0, index, rows.to(side.device))


def _parts(cache: KvCache, payload: Tensor, num_blocks: int, num_layers: int) -> Tensor:
    """Return a view of `payload`, [num_layers, 2, num_blocks, block_size, kv_heads, head_dim] in
    the cache's type, or bytes for one that torch does not move."""
    key = movable(cache.layers[0].key)
    return payload.view(key.dtype).view(num_layers, 2, num_blocks, *key.shape[1:])
