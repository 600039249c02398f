"""Rotates queries and keys of a merged projection, and writes keys and values to the paged cache.

Rotary position embedding (Su et al., 2021) pairs i and i + head_dim / 2. On request each head of
queries and keys is first normalised by root mean square (QK-norm; Dehghani et al., 2023).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

FP8_MAX = 448.0
"""The largest finite float8_e4m3fn."""

_FP8_MAX = tl.constexpr(FP8_MAX)
_MAX_HEADS_PER_PROGRAM = 8  # they share a row of the tables
_ELEMENTS_PER_WARP = 256  # 8 a lane: one load of 16 bytes in a type of 2 bytes


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Norms of each head of queries and keys.

    Weights are [head_dim]; `epsilon` is added to the mean square.
    """

    query: Tensor
    key: Tensor
    epsilon: float


def rotary_kv_write(
    qkv: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    cosines: Tensor | None,
    sines: Tensor | None,
    key_cache: Tensor,
    value_cache: Tensor,
    norms: HeadNorms | None = None,
    scales: Tensor | None = None,
    faults: Tensor | None = None,
    query_scales: Tensor | None = None,
) -> Tensor:
    """Write rotated keys, and values, to the cache; return the rotated queries.

    Computed in float32. Norms round as RmsNorm. A rotation is rounded once, to the type
    in which it is stored, also for keys of an fp8 cache.

    Args:
        qkv: [tokens, (heads + 2 * kv_heads) * head_dim]: queries, keys, values. Rows are contiguous
            and may lie apart.
        positions: [tokens] int64, rows of the tables.
        slot_mapping: [tokens] int64, block * block_size + offset, each at most once. A negative
            entry is a padding row: nothing is written, and its position is any row of the tables.
        cosines, sines: [positions, head_dim] contiguous, of any floating type. Both halves of a row
            are the same (layers/rotary.py): only the first is read. None: nothing is rotated.
        key_cache, value_cache: [num_blocks, block_size, kv_heads, head_dim], of the type of `qkv`
            or float8_e4m3fn. Any strides, the same for both, but the last dimension is contiguous.
        norms: Of the type of `qkv`, or float32 for products that are rounded late; None for no
            norms.
        scales: [2] float32 on the device, with fp8 caches only: keys are divided by the first and
            values by the second, then limited to the range of fp8.
        faults: [tokens] int64: set to 1 for tokens whose keys or values are not finite, or would
            not be in the stored type; 0 is stored in their place. None: they are stored as they
            are.
        query_scales: [positions] float32, factors of rotated queries; None for 1.

    Returns:
        Queries, [tokens, heads, head_dim] contiguous, of the type of `qkv`.
    """
    num_tokens, (block_size, num_kv_heads, head_dim) = qkv.shape[0], key_cache.shape[1:]
    num_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
    assert qkv.shape[1] == (num_heads + 2 * num_kv_heads) * head_dim
    _check_tokens(num_tokens, positions, slot_mapping, faults)
    _check_tables(cosines, sines, query_scales, head_dim)
    _check_norms(norms, head_dim, qkv.dtype)
    _check_heads(qkv, key_cache, value_cache, scales)
    queries = torch.empty((num_tokens, num_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    heads = min(triton.next_power_of_2(max(num_heads, num_kv_heads)), _MAX_HEADS_PER_PROGRAM)
    block = triton.next_power_of_2(head_dim // 2)
    grid = (num_tokens, triton.cdiv(num_heads, heads) + 2 * triton.cdiv(num_kv_heads, heads))
    _rotary_kv_write[grid](
        qkv,
        positions,
        slot_mapping,
        cosines,
        sines,
        queries,
        key_cache,
        value_cache,
        norms and norms.query,
        norms and norms.key,
        scales,
        faults,
        query_scales,
        qkv.stride(0),
        *key_cache.stride()[:3],
        norms.epsilon if norms else 0.0,
        BLOCK_SIZE=block_size,
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HEADS=heads,
        BLOCK=block,
        num_warps=max(heads * block // _ELEMENTS_PER_WARP, 1),
    )
    return queries


def _check_tensor(tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert tensor.shape == shape
    assert tensor.dtype == dtype
    assert tensor.is_contiguous()


def _check_tables(
    cosines: Tensor | None, sines: Tensor | None, query_scales: Tensor | None, head_dim: int
) -> None:
    if query_scales is not None:
        _check_tensor(query_scales, (len(query_scales),), torch.float32)
    if cosines is not None and sines is not None:
        for table in (cosines, sines):
            _check_tensor(table, (len(cosines), head_dim), cosines.dtype)


def _check_norms(norms: HeadNorms | None, head_dim: int, dtype: torch.dtype) -> None:
    for weight in (norms.query, norms.key) if norms else ():
        assert weight.dtype in (dtype, torch.float32)
        _check_tensor(weight, (head_dim,), weight.dtype)


def _check_tokens(num_tokens: int, *arrays: Tensor | None) -> None:
    for array in arrays:
        if array is not None:
            _check_tensor(array, (num_tokens,), torch.int64)


def _check_heads(qkv: Tensor, key: Tensor, value: Tensor, scales: Tensor | None) -> None:
    assert qkv.stride(1) == 1
    assert key.shape == value.shape
    assert key.shape[3] % 2 == 0
    assert key.stride() == value.stride()
    assert key.stride(3) == 1
    assert key.dtype == value.dtype == (qkv.dtype if scales is None else torch.float8_e4m3fn)
    if scales is not None:
        _check_tensor(scales, (2,), torch.float32)


# One line per argument would hide the kernel itself.
# fmt: off
@triton.jit
def _rotary_kv_write(
    qkv, positions, slot_mapping, cosines, sines, queries, key_cache, value_cache, query_norm,
    key_norm, scales, faults, query_scales, qkv_stride, block_stride, token_stride, head_stride,
    epsilon,
    BLOCK_SIZE: tl.constexpr, NUM_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr
):
    QUERY_GROUPS: tl.constexpr = (NUM_HEADS + HEADS - 1) // HEADS
    KV_GROUPS: tl.constexpr = (NUM_KV_HEADS + HEADS - 1) // HEADS
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)  # rows may pass 2**31 elements
    pairs = _pairs(HEADS, BLOCK)
    row = qkv + token * qkv_stride + pairs
    angles = tl.load(positions + token) * HEAD_DIM + pairs
    slot = tl.load(slot_mapping + token)
    place = slot // BLOCK_SIZE * block_stride + slot % BLOCK_SIZE * token_stride + pairs
    num_kept = tl.where(slot >= 0, NUM_KV_HEADS, 0)  # of padding none
    dtype: tl.constexpr = qkv.dtype.element_ty
    if group < QUERY_GROUPS:
        head, mask = _heads(group, NUM_HEADS, pairs, HEAD_DIM)
        first, second = _load(row + head * HEAD_DIM, mask, HEAD_DIM)
        first, second = _norm(first, second, query_norm, epsilon, dtype, HEAD_DIM)
        first, second = _rotate(first, second, cosines, sines, angles, HEAD_DIM)
        if query_scales is not None:
            factor = tl.load(query_scales + tl.load(positions + token))
            first, second = first * factor, second * factor
        target = queries + (token * NUM_HEADS + head) * HEAD_DIM + pairs
        _store(target, first, second, None, 0, mask, None, token, HEAD_DIM)
    elif group < QUERY_GROUPS + KV_GROUPS:
        head, mask = _heads(group - QUERY_GROUPS, num_kept, pairs, HEAD_DIM)
        first, second = _load(row + (NUM_HEADS + head) * HEAD_DIM, mask, HEAD_DIM)
        first, second = _norm(first, second, key_norm, epsilon, dtype, HEAD_DIM)
        first, second = _rotate(first, second, cosines, sines, angles, HEAD_DIM)
        key = key_cache + place + head * head_stride
        _store(key, first, second, scales, 0, mask, faults, token, HEAD_DIM)
    else:
        head, mask = _heads(group - QUERY_GROUPS - KV_GROUPS, num_kept, pairs, HEAD_DIM)
        first, second = _load(row + (NUM_HEADS + NUM_KV_HEADS + head) * HEAD_DIM, mask, HEAD_DIM)
        value = value_cache + place + head * head_stride
        _store(value, first, second, scales, 1, mask, faults, token, HEAD_DIM)
# fmt: on


@triton.jit
def _pairs(HEADS: tl.constexpr, BLOCK: tl.constexpr):
    # As wide as heads, so that rows of tables load like heads and need no shared memory.
    return tl.broadcast_to(tl.arange(0, BLOCK)[None, :], (HEADS, BLOCK))


@triton.jit
def _heads(group, count, pairs, HEAD_DIM: tl.constexpr):
    HEADS: tl.constexpr = pairs.shape[0]
    # int64: heads times their stride may pass 2**31 in a cache that has them outermost.
    head = group * HEADS + tl.arange(0, HEADS)[:, None].to(tl.int64)
    return head, (head < count) & (pairs < HEAD_DIM // 2)


@triton.jit
def _load(first, mask, HEAD_DIM: tl.constexpr):
    second = tl.load(first + HEAD_DIM // 2, mask=mask, other=0.0)
    return tl.load(first, mask=mask, other=0.0).to(tl.float32), second.to(tl.float32)


@triton.jit
def _norm(first, second, weight, epsilon, dtype: tl.constexpr, HEAD_DIM: tl.constexpr):
    if weight is not None:
        pairs = _pairs(first.shape[0], first.shape[1])
        squares = tl.sum(first * first + second * second, axis=1) / HEAD_DIM
        scale = tl.rsqrt(squares + epsilon)[:, None]
        weights = _load(weight + pairs, pairs < HEAD_DIM // 2, HEAD_DIM)
        first, second = first * scale, second * scale
        # A wider weight is multiplied before rounding.
        if weight.dtype.element_ty == dtype:
            first, second = first.to(dtype).to(tl.float32), second.to(dtype).to(tl.float32)
        first = (first * weights[0]).to(dtype).to(tl.float32)
        second = (second * weights[1]).to(dtype).to(tl.float32)
    return first, second


@triton.jit
def _rotate(first, second, cosines, sines, angles, HEAD_DIM: tl.constexpr):
    if cosines is not None:
        mask = _pairs(first.shape[0], first.shape[1]) < HEAD_DIM // 2
        cosine = tl.load(cosines + angles, mask=mask, other=0.0).to(tl.float32)
        sine = tl.load(sines + angles, mask=mask, other=0.0).to(tl.float32)
        first, second = first * cosine - second * sine, second * cosine + first * sine
    return first, second


@triton.jit
def _keep_finite(first, second, target, scales, faults, token):
    """Return 0 for masked values and values that are not finite, and set the fault of the token."""
    if faults is not None:
        is_first, is_second = _is_finite(first, target, scales), _is_finite(second, target, scales)
        is_broken = tl.max(tl.max((~(is_first & is_second)).to(tl.int32), axis=1), axis=0) > 0
        # Several programs may write the same number.
        tl.store(faults + token, tl.full((), 1, tl.int64), mask=is_broken)
        first, second = tl.where(is_first, first, 0.0), tl.where(is_second, second, 0.0)
    return first, second


@triton.jit
def _is_finite(x, target, scales):
    if scales is None:
        # A large float32 is infinite in a narrower type; 8 bits are limited instead.
        x = x.to(target.dtype.element_ty).to(tl.float32)
    return tl.abs(x) < float("inf")


@triton.jit
def _store(target, first, second, scales, index, mask, faults, token, HEAD_DIM: tl.constexpr):
    first, second = _keep_finite(first, second, target, scales, faults, token)
    if scales is not None:
        scale = tl.load(scales + index)
        # NaN stays NaN: an earlier fault must stay visible.
        nan: tl.constexpr = tl.PropagateNan.ALL
        first = tl.clamp(first / scale, -_FP8_MAX, _FP8_MAX, propagate_nan=nan)
        second = tl.clamp(second / scale, -_FP8_MAX, _FP8_MAX, propagate_nan=nan)
    tl.store(target, first.to(target.dtype.element_ty), mask=mask)
    tl.store(target + HEAD_DIM // 2, second.to(target.dtype.element_ty), mask=mask)
