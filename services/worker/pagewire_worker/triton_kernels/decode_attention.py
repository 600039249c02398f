"""Attention of one new token per sequence over paged keys and values.

It runs in parallel over splits of fixed size (Flash-Decoding, Dao et al., 2023).
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind, Int64Array
from pagewire_worker.triton_kernels.attention_options import (
    LEAST_ROWS,
    AttentionOptions,
    ScoreScale,
)
from pagewire_worker.triton_kernels.attention_split import (
    attend_split,
    before_positions,
    merge_split,
)
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences, SplitPlan

MOST_PROGRAMS = 1024
"""About as many programs as a large device runs at once. If the longest possible sequence has more
splits, a program takes several: a grid captured for long sequences costs little with short ones."""

LEAST_SPLIT_PROGRAMS = 4
"""For each decode and KV head, so that a long sequence among many gets more than one program."""


MERGED_AHEAD = tl.constexpr(16)
"""Splits whose loads are under way while earlier splits are merged: a merge is a short sum, and
memory takes some hundred times as long to answer."""


def num_split_programs(num_decodes: int, num_kv_heads: int, num_splits: int) -> int:
    """Return the number of programs that share the splits of a decode and a KV head."""
    fitting = MOST_PROGRAMS // (num_decodes * num_kv_heads)
    return min(max(fitting, LEAST_SPLIT_PROGRAMS), num_splits)


def first_splits(counts: Int64Array) -> Int64Array:
    """Return the first split of each decode, for `counts` [decodes] splits of each."""
    firsts: Int64Array = np.cumsum(counts) - counts
    return firsts


@dataclass(frozen=True, slots=True)
class Decodes:
    """Sequences that are computed together.

    Attributes:
        which: [decodes] int32, the sequences with one token. Sequences of length 0 are padding,
            whose rows become 0.
        firsts: [decodes] int32, first split of each in the scratch memory, after those of the
            decodes before it.
        most_splits: Upper bound of the splits of one decode.
    """

    which: Tensor
    firsts: Tensor
    most_splits: int


@dataclass(frozen=True, slots=True)
class Partials:
    """Results of single splits, in scratch memory that all layers share.

    The splits of a decode follow those of the decode before, whatever their number. Within a decode
    they are ordered by head.

    Attributes:
        sums: [splits * heads, head_dim] float32.
        greatest, total: [splits * heads] float32.
    """

    sums: Tensor
    greatest: Tensor
    total: Tensor
    num_splits: int

    @classmethod
    def allocate(
        cls, num_splits: int, num_heads: int, head_dim: int, device: torch.device
    ) -> "Partials":
        """Return memory for `num_splits` splits of all decodes together."""
        num_rows = num_splits * num_heads
        return cls(
            torch.empty((num_rows, head_dim), dtype=torch.float32, device=device),
            torch.empty(num_rows, dtype=torch.float32, device=device),
            torch.empty(num_rows, dtype=torch.float32, device=device),
            num_splits,
        )

    @property
    def num_bytes(self) -> int:
        """Size of the memory in bytes."""
        return sum(part.nbytes for part in (self.sums, self.greatest, self.total))


def decode_attention(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    decodes: Decodes,
    attended: Tensor,
    partials: Partials,
    kind: AttentionKind,
    split_plan: SplitPlan,
) -> None:
    """Compute attention for the token of each sequence in `decodes`.

    Args:
        query: [tokens, heads, head_dim], contiguous, of all sequences of the step.
        layer: Keys and values, those of this step already written.
        attended: As `query`; rows of the tokens of `decodes` are written.
        partials: Scratch, with room for the splits of all `decodes`.
    """
    if len(decodes.which) == 0:
        return
    split_plan = split_plan.fit_to(query)
    _launch_splits(query, layer, sequences, decodes, partials, kind, split_plan)
    launch_merge(attended, layer, sequences, decodes, partials, kind.window or 0, split_plan)


def _launch_splits(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    decodes: Decodes,
    partials: Partials,
    kind: AttentionKind,
    split_plan: SplitPlan,
) -> None:
    num_heads, head_dim = query.shape[1:]
    num_decodes, num_kv_heads = len(decodes.which), layer.cache.num_kv_heads
    group = num_heads // num_kv_heads
    scale = ScoreScale.of(kind, head_dim, layer.key_scale)
    num_programs = num_split_programs(num_decodes, num_kv_heads, decodes.most_splits)
    num_rows = max(LEAST_ROWS, triton.next_power_of_2(group))
    width = max(16, triton.next_power_of_2(head_dim))
    options = AttentionOptions.of(query.dtype, layer.cache.key.dtype, num_rows, width)
    _decode_splits[(num_decodes, num_kv_heads, num_programs)](
        query,
        layer.cache.key,
        layer.cache.value,
        decodes.which,
        decodes.firsts,
        sequences.query_starts,
        sequences.seq_lens,
        sequences.block_tables,
        partials.sums,
        partials.greatest,
        partials.total,
        scale.factor,
        scale.softcap,
        sequences.block_tables.stride(0),
        *layer.strides,
        head_dim,
        NUM_HEADS=num_heads,
        GROUP=group,
        WINDOW=kind.window or 0,
        HAS_SOFTCAP=kind.softcap is not None,
        SPLIT=split_plan.split,
        TILE=split_plan.tile,
        BLOCK_SIZE=layer.cache.block_size,
        ROWS=num_rows,
        WIDTH=width,
        INTERPRETED=INTERPRETED,
        num_warps=options.num_warps,
        num_stages=options.num_stages,
    )


def launch_merge(
    attended: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    decodes: Decodes,
    partials: Partials,
    window: int,
    split_plan: SplitPlan,
) -> None:
    """Merge the splits of `decodes` into `attended`, [tokens, heads, numbers of a value]."""
    num_heads, head_dim = attended.shape[1:]
    _merge_splits[(len(decodes.which), num_heads)](
        decodes.which,
        decodes.firsts,
        sequences.query_starts,
        sequences.seq_lens,
        partials.sums,
        partials.greatest,
        partials.total,
        attended,
        layer.sinks,
        layer.value_scale,
        head_dim,
        NUM_HEADS=num_heads,
        WINDOW=window,
        SPLIT=split_plan.split,
        WIDTH=max(16, triton.next_power_of_2(head_dim)),
    )


# One line per argument would hide the kernel itself.
# fmt: off
@triton.jit(do_not_specialize=["table_stride"])
def _decode_splits(
    query, key, value, which, firsts, query_starts, seq_lens, tables, sums_out, greatest_out,
    total_out, score_scale, softcap, table_stride, block_stride, token_stride, head_stride,
    head_dim, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    decode, kv_head = tl.program_id(0), tl.program_id(1)
    sequence = tl.load(which + decode)
    end = tl.load(seq_lens + sequence)
    first_visible = 0
    if WINDOW > 0:
        first_visible = tl.maximum(end - WINDOW, 0)
    first_seen = first_visible // SPLIT
    first_split = first_seen + tl.program_id(2)
    if first_split * SPLIT >= end:
        return
    token = tl.load(query_starts + sequence).to(tl.int64)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    heads = kv_head * GROUP + rows
    head_begin = kv_head.to(tl.int64) * head_stride  # with heads outermost it may pass 2**31
    num_seen = tl.cdiv(end, SPLIT) - first_seen
    first_place = tl.load(firsts + decode).to(tl.int64) * NUM_HEADS + heads * num_seen
    is_row = (rows[:, None] < GROUP) & (columns[None, :] < head_dim)
    offsets = (token * NUM_HEADS + heads[:, None]) * head_dim + columns[None, :]
    queries = tl.load(query + offsets, mask=is_row, other=0.0)
    for split in range(first_split, tl.cdiv(end, SPLIT), tl.num_programs(2)):
        sums, greatest, total = attend_split(
            queries, key + head_begin, value + head_begin,
            tables + sequence.to(tl.int64) * table_stride, tl.full([ROWS], 0, tl.int32) + end - 1,
            first_visible, end, split * SPLIT, score_scale, softcap, block_stride, token_stride,
            head_dim, WINDOW, HAS_SOFTCAP, SPLIT, TILE, BLOCK_SIZE, ROWS, WIDTH, INTERPRETED
        )
        places = first_place + split - first_seen
        tl.store(sums_out + places[:, None] * head_dim + columns[None, :], sums, mask=is_row)
        tl.store(greatest_out + places, greatest, mask=rows < GROUP)
        tl.store(total_out + places, total, mask=rows < GROUP)


# fmt: on


@triton.jit
def _merge_splits(
    which,
    firsts,
    query_starts,
    seq_lens,
    sums_in,
    greatest_in,
    total_in,
    attended,
    sinks,
    value_scale,
    head_dim,
    NUM_HEADS: tl.constexpr,
    WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    decode, head = tl.program_id(0), tl.program_id(1)
    sequence = tl.load(which + decode)
    end = tl.load(seq_lens + sequence)
    token = tl.load(query_starts + sequence).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    is_column = columns < head_dim
    offsets = (token * NUM_HEADS + head) * head_dim + columns
    if end == 0:
        # Later kernels compute padding rows too, and must not read old memory there.
        zeros = tl.zeros([WIDTH], tl.float32).to(attended.dtype.element_ty)
        tl.store(attended + offsets, zeros, mask=is_column)
        return
    first = 0
    if WINDOW > 0:
        first = tl.maximum(end - WINDOW, 0) // SPLIT
    num_seen = tl.cdiv(end, SPLIT) - first
    place = tl.load(firsts + decode).to(tl.int64) * NUM_HEADS + head * num_seen
    sums = tl.zeros([WIDTH], tl.float32)
    greatest, total = before_positions(sinks, head + tl.zeros([1], tl.int32), 1)
    for split in tl.range(first, tl.cdiv(end, SPLIT), num_stages=MERGED_AHEAD):
        split_place = place + split - first
        split_sums = tl.load(sums_in + split_place * head_dim + columns, mask=is_column, other=0.0)
        one = tl.arange(0, 1)
        sums, greatest, total = merge_split(
            sums,
            greatest,
            total,
            split_sums,
            tl.load(greatest_in + split_place + one),
            tl.load(total_in + split_place + one),
        )
    result = sums / total * value_scale
    tl.store(attended + offsets, result.to(attended.dtype.element_ty), mask=is_column)
