"""Attention of one new token per sequence over paged keys and values, in parallel over splits of
fixed size (Flash-Decoding, Dao et al., 2023)."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.attention.base import AttentionKind
from pagewire_worker.triton_kernels.attention_scores import ScoreScale
from pagewire_worker.triton_kernels.attention_split import HIDDEN, attend_split, merge_split
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.paged_sequences import Cut, PagedLayer, PagedSequences

LEAST_ROWS = 16
"""Rows of the smallest matrix product: the query heads of a KV head fill some of them."""

MOST_PROGRAMS = 1024
"""About as many as a large device runs at once. Where that does not allow a program for each split
of the longest sequence there may be, programs take several: a grid that was captured for long
sequences costs little with short ones."""

LEAST_SPLIT_PROGRAMS = 4
"""For each decode and KV head, so that a long sequence among many is not left to one program."""


def num_split_programs(num_decodes: int, num_kv_heads: int, num_splits: int) -> int:
    """Return how many programs share the splits of a decode and a KV head."""
    fitting = MOST_PROGRAMS // (num_decodes * num_kv_heads)
    return min(max(fitting, LEAST_SPLIT_PROGRAMS), num_splits)


@dataclass(frozen=True, slots=True)
class Partials:
    """What single splits amount to; scratch memory of a step, the same for all layers.

    Attributes:
        sums: [decodes, heads, splits, head_dim] float32.
        greatest, total: [decodes, heads, splits] float32.
    """

    sums: Tensor
    greatest: Tensor
    total: Tensor

    @classmethod
    def allocate(
        cls, num_decodes: int, num_heads: int, num_splits: int, head_dim: int, device: torch.device
    ) -> "Partials":
        """Return memory for a step."""
        size = (num_decodes, num_heads, num_splits)
        return cls(
            torch.empty((*size, head_dim), dtype=torch.float32, device=device),
            torch.empty(size, dtype=torch.float32, device=device),
            torch.empty(size, dtype=torch.float32, device=device),
        )


def decode_attention(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    which: Tensor,
    attended: Tensor,
    partials: Partials,
    kind: AttentionKind,
    cut: Cut,
) -> None:
    """Write what the token of each sequence in `which` attends to.

    Args:
        query: [tokens, heads, head_dim], contiguous, of all sequences of the step.
        layer: Keys and values, those of this step already written.
        sequences: Of the step.
        which: [decodes] int32, the sequences with one token; those of length 0 are padding, whose
            rows become 0.
        attended: As `query`; rows of the tokens of `which` are written.
        partials: Scratch; its splits bound the length of a sequence.
        kind, cut: How.
    """
    if len(which) == 0:
        return
    cut = cut.fitting(query)
    _launch_splits(query, layer, sequences, which, partials, kind, cut)
    _launch_merge(attended, sequences, which, partials, layer.value_scale, kind.window or 0, cut)


def _launch_splits(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    which: Tensor,
    partials: Partials,
    kind: AttentionKind,
    cut: Cut,
) -> None:
    num_heads, head_dim = query.shape[1:]
    num_kv_heads, num_splits = layer.cache.num_kv_heads, partials.greatest.shape[2]
    group = num_heads // num_kv_heads
    scale = ScoreScale.of(kind, head_dim, layer.key_scale)
    num_programs = num_split_programs(len(which), num_kv_heads, num_splits)
    _decode_splits[(len(which), num_kv_heads, num_programs)](
        query,
        layer.cache.key,
        layer.cache.value,
        which,
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
        num_splits,
        head_dim,
        NUM_HEADS=num_heads,
        GROUP=group,
        WINDOW=kind.window or 0,
        HAS_SOFTCAP=kind.softcap is not None,
        SPLIT=cut.split,
        TILE=cut.tile,
        BLOCK_SIZE=layer.cache.block_size,
        ROWS=max(LEAST_ROWS, triton.next_power_of_2(group)),
        WIDTH=max(16, triton.next_power_of_2(head_dim)),
        INTERPRETED=INTERPRETED,
    )


def _launch_merge(
    attended: Tensor,
    sequences: PagedSequences,
    which: Tensor,
    partials: Partials,
    value_scale: float,
    window: int,
    cut: Cut,
) -> None:
    num_heads, head_dim = attended.shape[1:]
    _merge_splits[(len(which), num_heads)](
        which,
        sequences.query_starts,
        sequences.seq_lens,
        partials.sums,
        partials.greatest,
        partials.total,
        attended,
        value_scale,
        partials.greatest.shape[2],
        head_dim,
        NUM_HEADS=num_heads,
        WINDOW=window,
        SPLIT=cut.split,
        WIDTH=max(16, triton.next_power_of_2(head_dim)),
    )


# A line for each argument would hide what the kernel does.
# fmt: off
@triton.jit(do_not_specialize=["table_stride", "num_splits"])
def _decode_splits(
    query, key, value, which, query_starts, seq_lens, tables, sums_out, greatest_out, total_out,
    score_scale, softcap, table_stride, block_stride, token_stride, head_stride, num_splits,
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
    first_split = first_visible // SPLIT + tl.program_id(2)
    if first_split * SPLIT >= end:
        return
    token = tl.load(query_starts + sequence).to(tl.int64)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    heads = kv_head * GROUP + rows
    is_row = (rows[:, None] < GROUP) & (columns[None, :] < head_dim)
    offsets = (token * NUM_HEADS + heads[:, None]) * head_dim + columns[None, :]
    queries = tl.load(query + offsets, mask=is_row, other=0.0)
    for split in range(first_split, tl.cdiv(end, SPLIT), tl.num_programs(2)):
        sums, greatest, total = attend_split(
            queries, key + kv_head * head_stride, value + kv_head * head_stride,
            tables + sequence.to(tl.int64) * table_stride, tl.full([ROWS], 0, tl.int32) + end - 1,
            first_visible, end, split * SPLIT, score_scale, softcap, block_stride, token_stride,
            head_dim, WINDOW, HAS_SOFTCAP, SPLIT, TILE, BLOCK_SIZE, ROWS, WIDTH, INTERPRETED
        )
        places = (decode.to(tl.int64) * NUM_HEADS + heads) * num_splits + split
        tl.store(sums_out + places[:, None] * head_dim + columns[None, :], sums, mask=is_row)
        tl.store(greatest_out + places, greatest, mask=rows < GROUP)
        tl.store(total_out + places, total, mask=rows < GROUP)


# fmt: on


@triton.jit(do_not_specialize=["num_splits"])
def _merge_splits(
    which,
    query_starts,
    seq_lens,
    sums_in,
    greatest_in,
    total_in,
    attended,
    value_scale,
    num_splits,
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
        # What follows computes padding rows, too, and not from what lay in the memory before.
        zeros = tl.zeros([WIDTH], tl.float32).to(attended.dtype.element_ty)
        tl.store(attended + offsets, zeros, mask=is_column)
        return
    first = 0
    if WINDOW > 0:
        first = tl.maximum(end - WINDOW, 0) // SPLIT
    place = (decode.to(tl.int64) * NUM_HEADS + head) * num_splits
    sums = tl.zeros([WIDTH], tl.float32)
    greatest = tl.full([1], HIDDEN, tl.float32)
    total = tl.zeros([1], tl.float32)
    for split in range(first, tl.cdiv(end, SPLIT)):
        split_sums = tl.load(
            sums_in + (place + split) * head_dim + columns, mask=is_column, other=0.0
        )
        one = tl.arange(0, 1)
        sums, greatest, total = merge_split(
            sums,
            greatest,
            total,
            split_sums,
            tl.load(greatest_in + place + split + one),
            tl.load(total_in + place + split + one),
        )
    result = sums / total * value_scale
    tl.store(attended + offsets, result.to(attended.dtype.element_ty), mask=is_column)
