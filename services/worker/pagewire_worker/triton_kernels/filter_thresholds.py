"""Finds, without sorting, the lowest value that min-p, top-k and top-p leave in a row.

Each filter of `sampling.filters` decides by the value of a token alone, so one threshold describes
all three. Floats have the order of unsigned integers once their bits are turned. A search over
those integers reads the row once per pass and cuts the range with the answer to a quarter. The row
stays in the second-level cache. The search ends when one value is left in the range: after 17
passes at most, after 5 to 7 in a vocabulary of 152 thousand tokens.

It runs over the logits themselves, because dividing by the temperature keeps their order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096
_MAX_BLOCKS = 512
"""More blocks could overflow the sums of `_fixed_point`."""


def filter_thresholds(
    logits: Tensor,
    temperature: Tensor,
    min_p: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    block: int = _BLOCK,
) -> Tensor:
    """Return per row the lowest logits / temperature that the filters keep, [rows] float32.

    Returns -inf without filters, at temperature 0, and if all logits are -inf.

    Args:
        logits: [rows, vocab] float32 without NaN and +inf; rows may lie apart.
        temperature: [rows] float32.
        min_p: [rows] float32, 0 keeps all.
        top_k: [rows] int64, 0 keeps all.
        top_p: [rows] float32 above 0, 1 keeps all.
        block: Values that are read together, a power of two; changes no outcome.
    """
    num_rows, vocab_size = logits.shape
    assert logits.dtype == torch.float32
    assert logits.stride(1) == 1
    assert vocab_size <= _MAX_BLOCKS * block
    rows = (temperature, min_p.log(), top_k, top_p)
    assert all(column.shape == (num_rows,) and column.is_contiguous() for column in rows)
    threshold = torch.empty(num_rows, dtype=torch.float32, device=logits.device)
    _filter_thresholds[(num_rows,)](
        logits, *rows, threshold, logits.stride(0), vocab_size, BLOCK=block, num_warps=16
    )
    return threshold


@triton.jit
def _filter_thresholds(
    logits,
    temperature,
    log_min_p,
    top_k,
    top_p,
    threshold,
    logits_stride,
    vocab_size,
    BLOCK: tl.constexpr,
):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    begin = logits + row * logits_stride
    heat = tl.load(temperature + row)
    log_share = tl.load(log_min_p + row)
    rank = tl.load(top_k + row)
    wanted = tl.load(top_p + row)
    has_rank = (rank > 0) & (rank < vocab_size)
    lowest = tl.full((), float("-inf"), tl.float32)
    if (heat > 0) & ((log_share > float("-inf")) | has_rank | (wanted < 1)):
        largest = _largest(begin, vocab_size, BLOCK)
        lowest = tl.div_rn(largest, heat) + log_share
        ranked = tl.full((), float("-inf"), tl.float32)
        if has_rank:
            ranked = _ranked(begin, vocab_size, heat, rank, largest, BLOCK)
            lowest = tl.maximum(lowest, tl.div_rn(ranked, heat))
        if (wanted < 1) & (largest > float("-inf")):
            last = _last_of_nucleus(begin, vocab_size, heat, lowest, wanted, ranked, largest, BLOCK)
            lowest = tl.maximum(lowest, tl.div_rn(last, heat))
    tl.store(threshold + row, lowest)


@triton.jit
def _largest(begin, vocab_size, BLOCK: tl.constexpr):
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, vocab_size, BLOCK):
        largest = tl.maximum(largest, _values(begin, start, vocab_size, BLOCK))
    return tl.max(largest, axis=0)


@triton.jit
def _ranked(begin, vocab_size, heat, rank, largest, BLOCK: tl.constexpr):
    """Return the logit of a rank: the largest value that at least `rank` values reach."""
    low, high = _ordered(tl.full((), float("-inf"), tl.float32)), _ordered(largest)
    key1, key2, key3 = _guesses(low, high, largest, heat)
    while low < high:
        least, most = tl.full([BLOCK], high, tl.uint32), tl.full([BLOCK], low, tl.uint32)
        count1 = tl.zeros([BLOCK], tl.int32)
        count2 = tl.zeros([BLOCK], tl.int32)
        count3 = tl.zeros([BLOCK], tl.int32)
        for start in range(0, vocab_size, BLOCK):
            # -inf outside of the row is below every key of the search.
            keys = _ordered(_values(begin, start, vocab_size, BLOCK))
            least = tl.minimum(least, tl.where(keys >= low, keys, high))
            most = tl.maximum(most, tl.where(keys <= high, keys, low))
            count1 += (keys >= key1).to(tl.int32)
            count2 += (keys >= key2).to(tl.int32)
            count3 += (keys >= key3).to(tl.int32)
        reached1 = tl.sum(count1, axis=0) >= rank
        reached2 = tl.sum(count2, axis=0) >= rank
        reached3 = tl.sum(count3, axis=0) >= rank
        low, high = _narrowed(low, high, key1, key2, key3, reached1, reached2, reached3)
        low, high = tl.maximum(low, tl.min(least, axis=0)), tl.minimum(high, tl.max(most, axis=0))
        key1, key2, key3 = _quarters(low, high)
    return _value(low)


@triton.jit
def _last_of_nucleus(begin, vocab_size, heat, lowest, wanted, ranked, largest, BLOCK: tl.constexpr):
    """Return the largest logit from which on probabilities sum up to `wanted`.

    If all of them together do not, returns a logit that no kept logit is below.
    """
    total = _logsumexp(begin, vocab_size, heat, lowest, largest, BLOCK)
    low, high = _ordered(ranked), _ordered(largest)
    key1, key2, key3 = _guesses(low, high, largest, heat)
    while low < high:
        least, most = tl.full([BLOCK], high, tl.uint32), tl.full([BLOCK], low, tl.uint32)
        whole1, part1 = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        whole2, part2 = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        whole3, part3 = tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
        for start in range(0, vocab_size, BLOCK):
            values = _values(begin, start, vocab_size, BLOCK)
            whole, part = _fixed_point(_powers(values, heat, lowest, total))
            keys = _ordered(values)
            least = tl.minimum(least, tl.where(keys >= low, keys, high))
            most = tl.maximum(most, tl.where(keys <= high, keys, low))
            whole1 += tl.where(keys >= key1, whole, 0)
            part1 += tl.where(keys >= key1, part, 0)
            whole2 += tl.where(keys >= key2, whole, 0)
            part2 += tl.where(keys >= key2, part, 0)
            whole3 += tl.where(keys >= key3, whole, 0)
            part3 += tl.where(keys >= key3, part, 0)
        reached1 = _sum(whole1, part1) >= wanted
        reached2 = _sum(whole2, part2) >= wanted
        reached3 = _sum(whole3, part3) >= wanted
        low, high = _narrowed(low, high, key1, key2, key3, reached1, reached2, reached3)
        low, high = tl.maximum(low, tl.min(least, axis=0)), tl.minimum(high, tl.max(most, axis=0))
        key1, key2, key3 = _quarters(low, high)
    return _value(low)


@triton.jit
def _logsumexp(begin, vocab_size, heat, lowest, largest, BLOCK: tl.constexpr):
    """Return log(sum(exp)) of the kept logits / temperature, rounded as `row_sums` does."""
    top = tl.div_rn(largest, heat)
    wholes = tl.zeros([BLOCK], tl.int32)
    parts = tl.zeros([BLOCK], tl.int32)
    for start in range(0, vocab_size, BLOCK):
        values = _values(begin, start, vocab_size, BLOCK)
        whole, part = _fixed_point(_powers(values, heat, lowest, top))
        wholes += whole
        parts += part
    return tl.log(_sum(wholes, parts)).to(tl.float32) + top


@triton.jit
def _values(begin, start, vocab_size, BLOCK: tl.constexpr):
    columns = start + tl.arange(0, BLOCK)
    return tl.load(begin + columns, mask=columns < vocab_size, other=float("-inf"))


@triton.jit
def _powers(values, heat, lowest, minus):
    """Return exp(values / heat - minus), 0 where values / heat is below `lowest`."""
    scaled = tl.div_rn(values, heat)
    return tl.where(scaled >= lowest, tl.exp(scaled - minus), 0.0)


@triton.jit
def _fixed_point(powers):
    """Split numbers from 0 to 1 into int32 multiples of 2**-22 and of 2**-44.

    Their sums are exact in any order, and need no float64, which is slow on many devices.
    """
    shifted = powers * 4194304.0
    whole = shifted.to(tl.int32)
    return whole, ((shifted - whole.to(tl.float32)) * 4194304.0).to(tl.int32)


@triton.jit
def _sum(wholes, parts):
    """Return the sum of the parts from `_fixed_point`, float64."""
    whole = tl.sum(wholes.to(tl.int64), axis=0)
    total = whole * 4194304 + tl.sum(parts.to(tl.int64), axis=0)
    return total.to(tl.float64) * 5.684341886080802e-14


@triton.jit
def _ordered(values):
    """Return float32 as uint32 in the same order."""
    bits = values.to(tl.uint32, bitcast=True)
    return tl.where(bits >= 0x80000000, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def _value(key):
    """Return the float32 value of a key from `_ordered`."""
    bits = tl.where(key >= 0x80000000, key ^ 0x80000000, key ^ 0xFFFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _guesses(low, high, largest, heat):
    """Return three rising first keys in (low, high], at likely ratios of probability.

    Quarters of the range of floats would spend some passes only on the exponent.
    """
    key1 = _ordered(largest - 16.0 * heat)
    key2 = _ordered(largest - 6.0 * heat)
    key3 = _ordered(largest - 2.0 * heat)
    first = low + 1
    key1 = tl.maximum(tl.minimum(key1, high), first)
    key2 = tl.maximum(tl.minimum(key2, high), first)
    return key1, key2, tl.maximum(tl.minimum(key3, high), first)


@triton.jit
def _quarters(low, high):
    """Return three rising keys in (low, high] that cut it into quarters."""
    step = (high - low) // 4 + 1
    return low + step, tl.minimum(low + 2 * step, high), tl.minimum(low + 3 * step, high)


@triton.jit
def _narrowed(low, high, key1, key2, key3, reached1, reached2, reached3):
    """Return the quarter of the range that ends below the first key that was not reached."""
    new_low = tl.where(reached3, key3, tl.where(reached2, key2, tl.where(reached1, key1, low)))
    below = tl.where(reached2, key3, tl.where(reached1, key2, key1)) - 1
    return new_low, tl.where(reached3, high, below)
