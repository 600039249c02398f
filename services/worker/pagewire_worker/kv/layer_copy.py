"""Copies single layers of blocks between the paged cache and flat payloads.

A payload has, per layer, the keys of all its blocks and then their values, or their latents alone,
each [block_size, kv_heads, head_dim] per block in the cache's type. From whole blocks this is one
gather on the device and one copy between device and host, enqueued on the current stream. The
caller orders the copies (see device_copies).
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pagewire_worker.kv.block_copy import SizedBlocks
from pagewire_worker.kv.kv_cache import KvCache, movable


def bytes_per_layer(cache: KvCache) -> int:
    """Return the bytes of one layer of one block."""
    return cache.bytes_per_block // len(cache.stored)


def block_index(cache: SizedBlocks, blocks: Sequence[int]) -> Tensor:
    """Return `blocks` as index for the copies below, [n] int64 on the host.

    The index is pinned if the cache is on a device.
    """
    is_cuda = cache.device.type == "cuda"
    return torch.tensor(blocks, dtype=torch.int64, pin_memory=is_cuda)


@torch.inference_mode()
def copy_layers_out(
    cache: KvCache, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
) -> None:
    """Copy layers of the blocks `index` [n] into `payload`, uint8 [num_layers * n * bytes]."""
    # Moved in the stream of the copy: otherwise its memory could be reused before it is read.
    index = index.to(cache.device, non_blocking=True)
    for stored, dim, rows in _parts(cache, payload, len(index), first_layer, num_layers):
        if stored.device == rows.device:
            torch.index_select(stored, dim, index, out=rows)
        else:
            rows.copy_(stored.index_select(dim, index), non_blocking=True)


@torch.inference_mode()
def copy_layers_in(
    cache: KvCache, index: Tensor, first_layer: int, num_layers: int, payload: Tensor
) -> None:
    """Write `payload`, uint8 [num_layers * n * bytes], into layers of the blocks `index` [n]."""
    if cache.device.type == "cuda":
        payload = payload.pin_memory()
    index = index.to(cache.device, non_blocking=True)
    for stored, dim, rows in _parts(cache, payload, len(index), first_layer, num_layers):
        stored.index_copy_(dim, index, rows.to(cache.device, non_blocking=True))


def _parts(
    cache: KvCache, payload: Tensor, num_blocks: int, first_layer: int, num_layers: int
) -> Iterator[tuple[Tensor, int, Tensor]]:
    """Yield (part of the cache, its dimension of blocks, part of `payload`).

    Both parts have the same shape except for the number of blocks.
    """
    key = movable(cache.stored[0].key)
    num_parts = cache.shape.num_parts
    whole = payload.view(key.dtype).view(num_layers, num_parts, num_blocks, *key.shape[1:])
    if cache.blocks is not None:
        by_layer = movable(cache.blocks).permute(1, 2, 0, 3, 4, 5)
        yield by_layer[first_layer : first_layer + num_layers], 2, whole
        return
    for number in range(num_layers):
        parts = cache.stored[first_layer + number].parts
        for side, rows in zip(map(movable, parts), whole[number], strict=True):
            yield side, 0, rows
