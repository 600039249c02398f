"""Whole blocks of a paged cache to and from a tensor that holds them in a row, for a transfer."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_WORD_BYTES = 8
_WORDS_PER_PROGRAM = 1024
_NUM_WARPS = 4  # 8 words a lane


def gather_blocks(cache: Tensor, blocks: Tensor) -> Tensor:
    """Return the bytes of `blocks`, uint8 [n, bytes per block] contiguous.

    Args:
        cache: [num_blocks, ...] of any type. A block is contiguous, a multiple of 8 bytes long and
            at an address divisible by 8; blocks may lie apart.
        blocks: [n] int64, in any order, also repeated. Negative: its row may hold anything.
    """
    words = _words(cache)
    staging = torch.empty((len(blocks), words.shape[1]), dtype=torch.int64, device=cache.device)
    _launch(words, blocks, staging, is_gather=True)
    return staging.view(torch.uint8)


def scatter_blocks(staging: Tensor, cache: Tensor, blocks: Tensor) -> None:
    """Write to `blocks` of `cache` what `gather_blocks` returned for as many; each block once.

    Args:
        staging: uint8 [n, bytes per block] contiguous, at an address divisible by 8.
        cache: As for `gather_blocks`.
        blocks: [n] int64. Negative: this one is not written.
    """
    words = _words(cache)
    assert staging.dtype == torch.uint8
    assert staging.is_contiguous()
    assert staging.shape == (len(blocks), words.shape[1] * _WORD_BYTES)
    _launch(words, blocks, staging.view(torch.int64), is_gather=False)


def _words(cache: Tensor) -> Tensor:
    """Return the memory of each block as 64-bit words, [num_blocks, words]."""
    assert cache[0].is_contiguous()
    stride_bytes = cache.stride(0) * cache.itemsize
    block_bytes = cache[0].numel() * cache.itemsize
    assert stride_bytes % _WORD_BYTES == block_bytes % _WORD_BYTES == 0
    flat = cache.as_strided((len(cache), block_bytes // cache.itemsize), (cache.stride(0), 1))
    return flat.view(torch.int64)


def _launch(words: Tensor, blocks: Tensor, staging: Tensor, *, is_gather: bool) -> None:
    assert blocks.dtype == torch.int64
    assert blocks.is_contiguous()
    num_words = words.shape[1]
    grid = (len(blocks), triton.cdiv(num_words, _WORDS_PER_PROGRAM))
    _copy_blocks[grid](
        words,
        blocks,
        staging,
        words.stride(0),
        num_words,
        IS_GATHER=is_gather,
        WORDS=_WORDS_PER_PROGRAM,
        num_warps=_NUM_WARPS,
    )


@triton.jit
def _copy_blocks(
    cache, blocks, staging, block_stride, num_words, IS_GATHER: tl.constexpr, WORDS: tl.constexpr
):
    # int64: blocks times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    word = tl.program_id(1) * WORDS + tl.arange(0, WORDS)
    block = tl.load(blocks + row)
    # Of a negative block nothing is copied.
    is_inside = word < tl.where(block >= 0, num_words, 0)
    in_cache = cache + block * block_stride + word
    in_staging = staging + row * num_words + word
    if IS_GATHER:
        tl.store(in_staging, tl.load(in_cache, mask=is_inside), mask=is_inside)
    else:
        tl.store(in_cache, tl.load(in_staging, mask=is_inside), mask=is_inside)


def gather_blocks_oracle(cache: Tensor, blocks: Tensor) -> Tensor:
    """Return what `gather_blocks` does."""
    return cache.index_select(0, blocks).flatten(1).view(torch.uint8)


def scatter_blocks_oracle(staging: Tensor, cache: Tensor, blocks: Tensor) -> None:
    """Do what `scatter_blocks` does."""
    for block, row in zip(blocks.tolist(), staging, strict=True):
        if block >= 0:
            cache[block] = row.view(cache.dtype).view(cache.shape[1:])
