"""The norm of latents, the rotation of the last numbers of keys and queries, and the write to the
cache."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.rotary_kv_write import _load, _norm, _pairs, _rotate, _store

HEADS = 16
"""Heads whose queries one program rotates."""


def latent_write(
    keys: Tensor,
    queries: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    cosines: Tensor,
    sines: Tensor,
    cache: Tensor,
    weight: Tensor,
    epsilon: float,
    faults: Tensor | None,
    num_heads: int,
    scales: Tensor | None = None,
) -> Tensor:
    """Write the normed latents and rotated keys of some tokens, and rotate their queries.

    Args:
        keys: [tokens, latent + rotated], latents first. Rows are contiguous.
        queries: [tokens, heads * (plain + rotated)], as `keys`.
        positions, slot_mapping: [tokens] int64; tokens at -1 are padding and are not written.
        cosines, sines: [positions, rotated]; both halves are equal.
        cache: [num_blocks, block_size, 1, latent + rotated], of the type of `keys` or
            float8_e4m3fn.
        weight: [latent], of the norm.
        faults: As in StepBatch.
        scales: As in rotary_kv_write: latents and rotated keys are divided by the first.

    Returns:
        [tokens, heads, latent + rotated], of which the rotated parts are written.
    """
    num_tokens, width = keys.shape
    rank, turned = len(weight), width - len(weight)
    query = torch.empty((num_tokens, num_heads, width), dtype=keys.dtype, device=keys.device)
    assert keys.stride(1) == queries.stride(1) == cache.stride(3) == 1
    assert (cache.dtype == keys.dtype) is (scales is None)
    assert cosines.shape[1] == sines.shape[1] == turned
    if num_tokens == 0:
        return query
    _latent_write[(num_tokens, 2 + triton.cdiv(num_heads, HEADS))](
        keys,
        queries,
        positions,
        slot_mapping,
        cosines,
        sines,
        query,
        cache,
        weight,
        scales,
        faults,
        keys.stride(0),
        queries.stride(0),
        cache.stride(0),
        cache.stride(1),
        epsilon,
        BLOCK_SIZE=cache.shape[1],
        NUM_HEADS=num_heads,
        RANK=rank,
        TURNED=turned,
        PLAIN=queries.shape[1] // num_heads - turned,
        HEADS=HEADS,
        BLOCK=triton.next_power_of_2(rank // 2),
        TURNED_BLOCK=triton.next_power_of_2(turned // 2),
    )
    return query


# One line per argument would hide the kernel itself.
# fmt: off
@triton.jit
def _latent_write(
    keys, queries, positions, slot_mapping, cosines, sines, query, cache, weight, scales, faults,
    key_stride, query_stride, block_stride, token_stride, epsilon, BLOCK_SIZE: tl.constexpr,
    NUM_HEADS: tl.constexpr, RANK: tl.constexpr, TURNED: tl.constexpr, PLAIN: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, TURNED_BLOCK: tl.constexpr
):
    token, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slot_mapping + token)
    place = cache + slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * token_stride
    row = keys + token * key_stride
    angle = tl.load(positions + token) * TURNED
    if part == 0:
        limit = tl.where(slot >= 0, RANK // 2, 0)  # of padding none
        _write_latent(row, place, limit, weight, epsilon, scales, faults, token, RANK, BLOCK)
    elif part == 1:
        limit = tl.where(slot >= 0, TURNED // 2, 0)
        _turn(
            row + RANK, place + RANK, 0, 1, 0, 0, limit, cosines + angle, sines + angle, scales,
            faults, token, 1, TURNED, TURNED_BLOCK
        )
    else:
        source = queries + token * query_stride + PLAIN
        target = query + token * NUM_HEADS * (RANK + TURNED) + RANK
        _turn(
            source, target, (part - 2) * HEADS, NUM_HEADS, PLAIN + TURNED, RANK + TURNED,
            TURNED // 2, cosines + angle, sines + angle, None, None, token, HEADS, TURNED,
            TURNED_BLOCK
        )


@triton.jit
def _write_latent(
    row, place, limit, weight, epsilon, scales, faults, token, RANK: tl.constexpr,
    BLOCK: tl.constexpr
):
    pairs = _pairs(1, BLOCK)
    mask = pairs < limit
    first, second = _load(row + pairs, mask, RANK)
    first, second = _norm(first, second, weight, epsilon, row.dtype.element_ty, RANK)
    _store(place + pairs, first, second, scales, 0, mask, faults, token, RANK)


@triton.jit
def _turn(
    source, target, first_head, num_heads, source_stride, target_stride, limit, cosines, sines,
    scales, faults, token, HEADS: tl.constexpr, TURNED: tl.constexpr, BLOCK: tl.constexpr
):
    pairs = _pairs(HEADS, BLOCK)
    head = first_head + tl.arange(0, HEADS)[:, None]
    mask = (head < num_heads) & (pairs < limit)
    first, second = _load(source + head * source_stride + pairs, mask, TURNED)
    first, second = _rotate(first, second, cosines, sines, pairs, TURNED)
    place = target + head * target_stride + pairs
    _store(place, first, second, scales, 0, mask, faults, token, TURNED)
# fmt: on
