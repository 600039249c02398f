"""Cuts the tokens of chunks into tiles that are computed together."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata, Int64Array
from pagewire_worker.backend.device_copy import rows_to_device
from pagewire_worker.triton_kernels.attention_options import LEAST_ROWS, ScoreScale
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences


@dataclass(frozen=True, slots=True)
class QueryTiles:
    """The tokens of chunks, cut into tiles that are computed together.

    Attributes:
        sequences: [tiles] int32, the sequence of each tile.
        firsts: [tiles] int32, its first token, counted from the start of the sequence's chunk.
        num_rows: Rows of a tile, a power of 2: tokens times query heads of a KV head, at least.
    """

    sequences: Tensor
    firsts: Tensor
    num_rows: int

    @classmethod
    def of(
        cls,
        metadata: AttentionMetadata,
        which: Int64Array,
        group: int,
        num_rows: int,
        device: torch.device,
    ) -> "QueryTiles":
        """Cut the chunks of the sequences `which` for `group` query heads per KV head.

        The last tiles of a chunk see the most positions, and come first.
        """
        num_rows = max(LEAST_ROWS, num_rows, triton.next_power_of_2(group))
        num_tokens = num_rows // group
        counts = -(-metadata.query_lens[which] // num_tokens)
        tiles = np.repeat(which, counts)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        both = np.stack((tiles, numbers * num_tokens)).astype(np.int32)
        order = np.argsort(-metadata.seq_lens[tiles] - numbers, kind="stable")
        sequences, firsts = rows_to_device((both[0, order], both[1, order]), device)
        return cls(sequences, firsts, num_rows)


def tile_arguments(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    tiles: QueryTiles,
    attended: Tensor,
    kind: AttentionKind,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what every kernel over tiles takes, by position and by name.

    Args:
        query: [tokens, heads, head_dim], contiguous, of all sequences of the step.
        layer: Keys and values, with those of this step.
        attended: As `query`; rows of the tokens of the tiles are written.
    """
    num_heads, head_dim = query.shape[1:]
    scale = ScoreScale.of(kind, head_dim, layer.key_scale)
    tables = sequences.block_tables
    given = (
        *(query, layer.cache.key, layer.cache.value, tiles.sequences, tiles.firsts),
        *(sequences.query_starts, sequences.seq_lens, tables, attended, layer.sinks),
        *(scale.factor, scale.softcap, layer.value_scale, tables.stride(0)),
        *(*layer.strides, head_dim),
    )
    named = {
        "NUM_HEADS": num_heads,
        "GROUP": num_heads // layer.cache.num_kv_heads,
        "WINDOW": kind.window or 0,
        "HAS_SOFTCAP": kind.softcap is not None,
        "BLOCK_SIZE": layer.cache.block_size,
        "ROWS": tiles.num_rows,
        "WIDTH": head_width(query),
        "INTERPRETED": INTERPRETED,
    }
    return given, named


def head_width(query: Tensor) -> int:
    """Return the width of a head of `query` [tokens, heads, head_dim] in a tile: a power of 2."""
    return max(16, 1 << (query.shape[2] - 1).bit_length())


# One line per argument would hide the kernel itself.
# fmt: off
@triton.jit
def query_tile(
    tile_sequences, tile_firsts, query_starts, seq_lens, head_dim, NUM_HEADS: tl.constexpr,
    GROUP: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Return where the tile of this program is, for programs (tile, KV head).

    Its sequence, the position of its first token, the position behind its last one, the offsets
    [ROWS, WIDTH] of its rows in the queries, which of them it has, and their positions [ROWS].
    """
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    sequence, first = tl.load(tile_sequences + tile), tl.load(tile_firsts + tile)
    query_start = tl.load(query_starts + sequence)
    query_len = tl.load(query_starts + sequence + 1) - query_start
    num_tokens = tl.minimum(ROWS // GROUP, query_len - first)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    is_row = (rows[:, None] // GROUP < num_tokens) & (columns[None, :] < head_dim)
    first_position = tl.load(seq_lens + sequence) - query_len + first
    tokens = (query_start + first).to(tl.int64) + rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    offsets = (tokens * NUM_HEADS + heads)[:, None] * head_dim + columns[None, :]
    end = first_position + num_tokens
    return sequence, first_position, end, offsets, is_row, first_position + rows // GROUP
# fmt: on
