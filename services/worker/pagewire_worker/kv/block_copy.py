"""Copies whole blocks between the paged cache and flat payloads.

A payload has, per layer, the block's keys and then its values, or its latents alone, each
[block_size, kv_heads, head_dim] in the cache's type. This is the memory of a whole block on CUDA.
Copies between a device and pinned host memory are enqueued on the current stream for the device's
copy engine, one per run of adjacent blocks. The caller orders them (see device_copies).
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.kv.kv_cache import KvCache, movable


class SizedBlocks(Protocol):
    """Blocks of one size, of a cache or of several."""

    @property
    def device(self) -> torch.device:
        """Device of the blocks."""
        ...

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one payload."""
        ...


def make_staging(cache: SizedBlocks, num_bytes: int) -> Tensor:
    """Return memory for about `num_bytes` of payloads, at least one, uint8 [blocks, bytes].

    Every page is touched: a later page fault would take longer than the copy.
    """
    num_blocks = max(1, num_bytes // cache.bytes_per_block)
    is_cuda = cache.device.type == "cuda"
    size = (num_blocks, cache.bytes_per_block)
    return torch.empty(size, dtype=torch.uint8, pin_memory=is_cuda).zero_()


@torch.inference_mode()
def copy_out(cache: KvCache, blocks: Sequence[int], staging: Tensor) -> Tensor:
    """Copy the payloads of n `blocks` into the first rows of `staging` [m, bytes].

    Returns these rows, uint8 [n, bytes].
    """
    payloads = staging[: len(blocks)]
    memory = cache.block_bytes
    if memory is not None:
        for row, block, count in _runs(blocks):
            into = payloads[row : row + count]
            into.copy_(memory[block : block + count], non_blocking=True)
        return payloads
    index = torch.tensor(blocks, dtype=torch.int64, device=cache.device)
    for layer, part in zip(cache.stored, _parts(cache, payloads), strict=True):
        for side, rows in zip(map(movable, layer.parts), part, strict=True):
            torch.index_select(side, 0, index, out=rows)
    return payloads


def fill_staging(
    cache: SizedBlocks, payloads: Sequence[memoryview | bytes], staging: Tensor
) -> Tensor:
    """Copy n `payloads` into the first rows of `staging` [m, bytes], m >= n, and return these rows.

    Raises:
        ValueError: The size of a payload differs from that of a block.
    """
    rows = staging[: len(payloads)]
    for row, payload in zip(rows.numpy(), payloads, strict=True):
        row[:] = _payload_bytes(payload, cache.bytes_per_block)
    return rows


@torch.inference_mode()
def write_blocks(cache: KvCache, blocks: Sequence[int], payloads: Tensor) -> None:
    """Write `payloads`, uint8 [n, bytes], into n `blocks`."""
    memory = cache.block_bytes
    if memory is not None:
        for row, block, count in _runs(blocks):
            into = memory[block : block + count]
            into.copy_(payloads[row : row + count], non_blocking=True)
        return
    index = torch.tensor(blocks, dtype=torch.int64, device=cache.device)
    for layer, part in zip(cache.stored, _parts(cache, payloads), strict=True):
        for side, data in zip(map(movable, layer.parts), part, strict=True):
            side.index_copy_(0, index, data)


def _runs(blocks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (row, block, count) for runs of rows with adjacent blocks."""
    begin = 0
    for end in range(1, len(blocks) + 1):
        if end == len(blocks) or blocks[end] != blocks[end - 1] + 1:
            yield begin, blocks[begin], end - begin
            begin = end


def _payload_bytes(
    payload: memoryview | bytes, num_bytes: int
) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    data = np.frombuffer(payload, dtype=np.uint8)
    if len(data) != num_bytes:
        raise ValueError(f"a block has {num_bytes} bytes, not {len(data)}")
    return data


def _parts(cache: KvCache, payloads: Tensor) -> list[Tensor]:
    """Return views of uint8 `payloads` [n, bytes]: the parts of each layer.

    Each is [parts, n, block_size, kv_heads, head_dim] in the cache's type, or in bytes where torch
    cannot move that type.
    """
    key = movable(cache.stored[0].key)
    shape = (len(payloads), len(cache.stored), cache.shape.num_parts, *key.shape[1:])
    whole = payloads.view(key.dtype).view(shape)
    return [whole[:, i].transpose(0, 1) for i in range(len(cache.stored))]
