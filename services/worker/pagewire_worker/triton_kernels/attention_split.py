"""Attention of query rows over one split of paged keys and values.

Decodes use it, and prefill chunks in exact mode: a token gets the same bits from both.
"""

import triton
import triton.language as tl

HIDDEN = tl.constexpr(-1e30)
"""Score of a hidden position: finite, so that rows that see no position yet make no NaN."""

_LOG2_E = tl.constexpr(1.4426950408889634)


# One line per argument would hide the kernel itself.
# fmt: off
@triton.jit
def attend_split(
    query, key, value, table, row_positions, first_visible, end, split_begin, score_scale,
    softcap, block_stride, token_stride, head_dim, WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    """Return sums [ROWS, WIDTH], greatest scores [ROWS] and total weights [ROWS], in float32.

    Scores are powers of 2. `key` and `value` point to the KV head. Positions from `first_visible`
    to `end` are read: those that a row of the tile sees.
    """
    columns = tl.arange(0, WIDTH)
    is_column = columns < head_dim
    greatest = tl.full([ROWS], HIDDEN, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    begin = tl.maximum(split_begin, first_visible // TILE * TILE)
    for tile_begin in range(begin, tl.minimum(split_begin + SPLIT, end), TILE):
        positions = tile_begin + tl.arange(0, TILE)
        # Other blocks may belong to other sequences or be unwritten: they must not even add zeros.
        is_there = (positions >= first_visible) & (positions < end)
        blocks = tl.load(table + positions // BLOCK_SIZE, mask=is_there, other=0).to(tl.int64)
        places = blocks * block_stride + (positions % BLOCK_SIZE).to(tl.int64) * token_stride
        offsets = places[:, None] + columns[None, :]
        is_read = is_there[:, None] & is_column[None, :]
        keys = tl.load(key + offsets, mask=is_read, other=0.0).to(query.dtype)
        values = tl.load(value + offsets, mask=is_read, other=0.0).to(query.dtype)
        scores = product(query, tl.trans(keys), INTERPRETED) * score_scale
        if HAS_SOFTCAP:
            scores = capped(scores, softcap)
        is_seen = seen_by(row_positions, positions, is_there, WINDOW)
        scores = tl.where(is_seen, scores, HIDDEN)
        highest = tl.maximum(greatest, tl.max(scores, axis=1))
        factor = tl.exp2(greatest - highest)
        weights = tl.exp2(scores - highest[:, None])
        total = tl.fma(total, factor, tl.sum(weights, axis=1))
        weighted = product(weights.to(query.dtype), values, INTERPRETED)
        sums = tl.fma(sums, tl.broadcast_to(factor[:, None], [ROWS, WIDTH]), weighted)
        greatest = highest
    return sums, greatest, total
# fmt: on


@triton.jit
def before_positions(sinks, heads, ROWS: tl.constexpr):
    """Return the greatest scores and total weights [ROWS] before any position, for `heads` [ROWS].

    A sink is a score whose value is 0, so it is counted here, once.
    """
    greatest = tl.full([ROWS], HIDDEN, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if sinks is not None:
        # A compiler could join a plain product with a later difference, in one kernel only.
        greatest = tl.fma(tl.load(sinks + heads), _LOG2_E, 0.0)
        total = tl.full([ROWS], 1.0, tl.float32)
    return greatest, total


@triton.jit
def merge_split(sums, greatest, total, split_sums, split_greatest, split_total):
    """Merge the next split into the splits so far; before the first there is before_positions.

    The order of operations is explicit: if a compiler contracted them in one kernel only, the bits
    would differ.
    """
    highest = tl.maximum(greatest, split_greatest)
    factor = tl.exp2(greatest - highest)
    split_factor = tl.exp2(split_greatest - highest)
    total = tl.fma(total, factor, split_total * split_factor)
    wide, split_wide = factor, split_factor
    if len(sums.shape) == 2:
        wide = tl.broadcast_to(factor[:, None], sums.shape)
        split_wide = tl.broadcast_to(split_factor[:, None], sums.shape)
    sums = tl.fma(sums, wide + tl.zeros_like(sums), split_sums * split_wide)
    return sums, highest, total


@triton.jit
def capped(scores, softcap):
    """Return softcap * tanh(scores), in powers of 2."""
    return softcap * (1.0 - 2.0 / (tl.exp(2.0 * scores) + 1.0))


@triton.jit
def seen_by(row_positions, positions, is_there, WINDOW: tl.constexpr):
    """Return which of the positions each row sees, [ROWS, TILE]."""
    is_seen = (positions[None, :] <= row_positions[:, None]) & is_there[None, :]
    if WINDOW > 0:
        is_seen = is_seen & (positions[None, :] > row_positions[:, None] - WINDOW)
    return is_seen


@triton.jit
def product(a, b, INTERPRETED: tl.constexpr):
    """Return the product in float32."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    # By default float32 would be cut to 19 bits.
    return tl.dot(a, b, input_precision="ieee")
