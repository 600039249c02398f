"""Blocks between the paged cache and flat payloads. Knows no names and no network.

A payload has, per layer, the block's keys and then its values, each [block_size, kv_heads,
head_dim] in the cache's type.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.kv_cache import KvCache, movable


def make_staging(cache: KvCache, num_bytes: int) -> Tensor:
    """Return memory for about `num_bytes` of payloads, and one at least, uint8 [blocks, bytes].

    Every page is touched: a fault later would take longer than the copy.
    """
    num_blocks = max(1, num_bytes // cache.bytes_per_block)
    is_cuda = cache.layers[0].key.device.type == "cuda"
    size = (num_blocks, cache.bytes_per_block)
    return torch.empty(size, dtype=torch.uint8, pin_memory=is_cuda).zero_()


@torch.inference_mode()
def copy_out(cache: KvCache, blocks: Sequence[int], staging: Tensor) -> Tensor:
    """Copy the payloads of n `blocks` into the first rows of `staging` [m, bytes] and return these
    rows, uint8 [n, bytes]."""
    payloads = staging[: len(blocks)]
    index = torch.tensor(blocks, dtype=torch.int64, device=cache.layers[0].key.device)
    for layer, part in zip(cache.layers, _parts(cache, payloads), strict=True):
        for side, rows in zip(map(movable, (layer.key, layer.value)), part, strict=True):
            if side.device == rows.device:
                torch.index_select(side, 0, index, out=rows)
            else:
                rows.copy_(side.index_select(0, index))
    return payloads


@torch.inference_mode()
def copy_in(
    cache: KvCache, blocks: Sequence[int], payloads: Sequence[memoryview | bytes], staging: Tensor
) -> None:
    """Write n `payloads` into `blocks`, through the first rows of `staging` [m, bytes], m >= n.

    Raises:
        ValueError: A payload has another size than a block; nothing is written then.
    """
    rows = staging[: len(blocks)]
    for row, payload in zip(rows.numpy(), payloads, strict=True):
        row[:] = _payload_bytes(payload, cache.bytes_per_block)
    index = torch.tensor(blocks, dtype=torch.int64, device=cache.layers[0].key.device)
    for layer, part in zip(cache.layers, _parts(cache, rows), strict=True):
        for side, data in zip(map(movable, (layer.key, layer.value)), part, strict=True):
            side.index_copy_(0, index, data.to(side.device))


def _payload_bytes(
    payload: memoryview | bytes, num_bytes: int
) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    data = np.frombuffer(payload, dtype=np.uint8)
    if len(data) != num_bytes:
        raise ValueError(f"a block has {num_bytes} bytes, not {len(data)}")
    return data


def _parts(cache: KvCache, payloads: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return views of uint8 `payloads` [n, bytes]: keys and values per layer, each [n, block_size,
    kv_heads, head_dim] in the cache's type, or bytes for one that torch does not move."""
    key = movable(cache.layers[0].key)
    shape = (len(payloads), len(cache.layers), 2, *key.shape[1:])
    whole = payloads.view(key.dtype).view(shape)
    return [(whole[:, i, 0], whole[:, i, 1]) for i in range(len(cache.layers))]
