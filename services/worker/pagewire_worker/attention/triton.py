"""Attention by Triton kernels that read the blocks in place.

Decodes run in parallel over splits of fixed size, chunks in tiles of queries.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.attention import (
    AttentionKind,
    AttentionMetadata,
    Int64Array,
    empty_output,
)
from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.backend.device_copy import rows_to_device
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.triton_kernels.attention_options import LEAST_ROWS
from pagewire_worker.triton_kernels.chunk_attention import chunk_attention
from pagewire_worker.triton_kernels.decode_attention import (
    Decodes,
    Partials,
    decode_attention,
    first_splits,
)
from pagewire_worker.triton_kernels.latent.latent_attention import (
    heads_per_tile,
    latent_chunks,
    latent_decodes,
)
from pagewire_worker.triton_kernels.paged_sequences import (
    FREE_SPLITS,
    PagedLayer,
    PagedSequences,
    SplitPlan,
    fit_rows,
)
from pagewire_worker.triton_kernels.prompt_attention import PROMPT_TILES, fits, prompt_attention
from pagewire_worker.triton_kernels.query_tiles import QueryTiles


def cut_passes(counts: Int64Array, capacity: int) -> list[tuple[int, int]]:
    """Return ranges of decodes, in order, whose splits fit in the memory together.

    Args:
        counts: [decodes], number of splits of each.
        capacity: Number of splits that the memory holds. A single decode beyond it would get its
            own range, but the size of the memory rules that out.
    """
    ranges: list[tuple[int, int]] = []
    begin = taken = 0
    for index, count in enumerate(counts.tolist()):
        if index > begin and taken + count > capacity:
            ranges.append((begin, index))
            begin, taken = index, 0
        taken += count
    if len(counts):
        ranges.append((begin, len(counts)))
    return ranges


CHUNK_ROWS = 64
"""Rows in a tile of a chunk: tokens times query heads of a KV head."""

EXACT_CHUNK_ROWS = LEAST_ROWS
"""Rows in exact mode, in which chunks and decodes must have the same bits: as many as in a tile of
a decode. More rows use other instructions: compute capability 9.0 has some for 64 rows or more.
They may round partial sums differently."""


MAX_PARTIAL_BYTES = 256 * 1024**2
"""Upper bound of scratch memory, unless one sequence takes more. Larger work is computed in several
passes."""

FLOAT_BYTES = 4


class TritonAttention:
    """Attention by the kernels of triton_kernels.

    Args:
        device: Device of the kernels; the CPU only in Triton's interpreter.
        kind: How the layers of the model attend.
        split_plan: How positions are cut. By default one cut for all if `chunk_rows` are those of
            exact mode, else one that fits the number of decodes.
        chunk_rows: Rows of a tile of a chunk, a power of 2.
    """

    takes_fp8_cache = True

    def __init__(
        self,
        device: torch.device,
        kind: AttentionKind,
        split_plan: SplitPlan | None = None,
        *,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        self._device = device
        self._kind = kind
        self._split_plan = SplitPlan() if split_plan is None else split_plan
        self._chunk_rows = chunk_rows
        self._is_fixed = split_plan is not None or chunk_rows == EXACT_CHUNK_ROWS
        self._scratch: Partials | None = None
        self._owner: TritonAttention | None = None

    @property
    def name(self) -> str:
        """Name, with the values that fix the order of sums."""
        split = self._split_plan.split if self._is_fixed else "free"
        rows = "" if self._chunk_rows == CHUNK_ROWS else f"-{self._chunk_rows}"
        return f"triton-{split}-{self._split_plan.tile}{rows}"

    @property
    def is_batch_invariant(self) -> bool:
        """Whether chunks use the instructions of decodes."""
        return self._chunk_rows == EXACT_CHUNK_ROWS

    @property
    def scratch(self) -> Partials:
        """The reserved memory."""
        scratch = self._reserved
        assert scratch is not None, "nobody has reserved scratch memory"
        return scratch

    @property
    def _reserved(self) -> Partials | None:
        return self._scratch if self._owner is None else self._owner._scratch

    def share_scratch(self, owner: "TritonAttention") -> None:
        """Use the memory of `owner`, whose sequences have as many splits or more."""
        self._owner = owner

    def reserve(
        self, num_heads: int, head_dim: int, bounds: DecodeBounds, most_bytes: int | None = None
    ) -> None:
        """Allocate the scratch memory of all later steps and graphs, once; its owner does it.

        Args:
            bounds: Upper bounds of decodes.
            most_bytes: Upper bound of the memory, unless one sequence takes more; MAX_PARTIAL_BYTES
                by default.
        """
        if self._owner is not None:
            return
        batches = {1, bounds.max_num_seqs, *(most for most, _ in FREE_SPLITS if most is not None)}
        needed = [
            min(batch, bounds.max_num_seqs) * self._most_splits(bounds.max_model_len, batch)
            for batch in batches
        ]
        allowed = MAX_PARTIAL_BYTES if most_bytes is None else most_bytes
        fitting = allowed // (FLOAT_BYTES * num_heads * (head_dim + 2))
        most = self._most_splits(bounds.max_model_len, 1)
        num_splits = max(most, min(fitting, max(needed)))
        self._scratch = Partials.allocate(num_splits, num_heads, head_dim, self._device)

    def takes_at_once(self, seq_lens: Int64Array, size: int | None = None) -> bool:
        """Return whether the reserved memory holds all splits of decodes with `seq_lens`."""
        return int(self.seen_splits(seq_lens, size).sum()) <= self.scratch.num_splits

    def seen_splits(self, seq_lens: Int64Array, size: int | None = None) -> Int64Array:
        """Return how many splits a decode of each sequence sees, [num_seqs].

        Args:
            seq_lens: [num_seqs].
            size: Decodes with the padding of their graph; as many as sequences by default.
        """
        plan = self.plan_of(len(seq_lens) if size is None else size)
        return plan.seen_splits(seq_lens, self._kind.window)

    def prepare(self, metadata: AttentionMetadata) -> "TritonStep":
        """Copy the small arrays to the device."""
        return TritonStep(
            attention=self,
            metadata=metadata,
            device=self._device,
            kind=self._kind,
            chunk_rows=self._chunk_rows,
        )

    def prepare_decodes(
        self, sequences: PagedSequences, firsts: Tensor, max_model_len: int
    ) -> "TritonDecodes":
        """Return attention of one token per sequence, over arrays that change between calls.

        Args:
            sequences: On the device; sequences of length 0 are padding.
            firsts: [num_seqs] int32, as in Decodes.
            max_model_len: Longest sequence.
        """
        which = torch.arange(len(sequences.seq_lens), dtype=torch.int32, device=self._device)
        num_seqs = len(sequences.seq_lens)
        decodes = Decodes(which, firsts, self._most_splits(max_model_len, num_seqs))
        return TritonDecodes(
            sequences=sequences,
            decodes=decodes,
            partials=self.scratch,
            kind=self._kind,
            split_plan=self.plan_of(num_seqs),
        )

    def scratch_for(self, num_splits: int, num_heads: int, head_dim: int) -> Partials:
        """Return the reserved memory; without it, as much as a step needs, within bounds."""
        if self._reserved is not None:
            return self._reserved
        fitting = MAX_PARTIAL_BYTES // (FLOAT_BYTES * num_heads * (head_dim + 2))
        return Partials.allocate(min(num_splits, fitting), num_heads, head_dim, self._device)

    def _most_splits(self, max_model_len: int, num_decodes: int) -> int:
        """Return the most splits that one of the decodes, of at most `max_model_len`, reads."""
        window, plan = self._kind.window, self.plan_of(num_decodes)
        longest = max_model_len if window is None else min(max_model_len, window + plan.split)
        return plan.num_splits(longest)

    def plan_of(self, num_decodes: int) -> SplitPlan:
        """Return how positions are cut in a batch of so many decodes."""
        return self._split_plan if self._is_fixed else self._split_plan.of_batch(num_decodes)

    @property
    def split_plan(self) -> SplitPlan:
        """How positions are cut in chunks, and in decodes where bits are promised."""
        return self._split_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonDecodes:
    """Attention of decodes; see decode_attention for the attributes."""

    sequences: PagedSequences
    decodes: Decodes
    partials: Partials
    kind: AttentionKind
    split_plan: SplitPlan

    def __call__(self, query: Tensor, cache: LayerCache, sinks: Tensor | None = None) -> Tensor:
        """Attend over one layer, [tokens, heads, head_dim]."""
        attended = empty_output(query, cache)
        attend = latent_decodes if cache.is_latent else decode_attention
        attend(
            query,
            PagedLayer.of(cache, sinks),
            self.sequences,
            self.decodes,
            attended,
            self.partials,
            self.kind,
            self.split_plan,
        )
        return attended


class TritonStep:
    """Attention of one step, called once per layer."""

    def __init__(
        self,
        *,
        attention: TritonAttention,
        metadata: AttentionMetadata,
        device: torch.device,
        kind: AttentionKind,
        chunk_rows: int,
    ) -> None:
        self._attention = attention
        self._metadata = metadata
        self._chunk_rows = chunk_rows
        # Of the sums of decodes: chunks may have their own.
        self._is_free = not attention.is_batch_invariant
        self._device = device
        self._kind = kind
        self._chunk_plan = attention.split_plan
        is_decode = metadata.query_lens == 1
        self._chunks: Int64Array = np.flatnonzero(~is_decode)
        self._which: Int64Array = np.flatnonzero(is_decode)
        self._decode_plan = attention.plan_of(len(self._which))
        self._sequences = PagedSequences.of(metadata, device)
        self._tiles: QueryTiles | None = None
        self._partials: Partials | None = None
        self._passes: list[Decodes] = []

    def __call__(self, query: Tensor, cache: LayerCache, sinks: Tensor | None = None) -> Tensor:
        """Attend over one layer, [tokens, heads, head_dim]."""
        query = query.contiguous()
        if self._tiles is None or self._partials is None:
            self._tiles, self._partials = self._plan(query, cache)
        attended = empty_output(query, cache)
        layer = PagedLayer.of(cache, sinks)
        attend_decodes = latent_decodes if cache.is_latent else decode_attention
        for decodes in self._passes:
            attend_decodes(
                query,
                layer,
                self._sequences,
                decodes,
                attended,
                self._partials,
                self._kind,
                self._decode_plan,
            )
        if self._is_free and fits(query, layer):
            prompt_attention(query, layer, self._sequences, self._tiles, attended, self._kind)
        else:
            attend_chunks = latent_chunks if cache.is_latent else chunk_attention
            attend_chunks(
                query, layer, self._sequences, self._tiles, attended, self._kind, self._chunk_plan
            )
        return attended

    def _plan(self, query: Tensor, cache: LayerCache) -> tuple[QueryTiles, Partials]:
        """Build the data that all layers share, once the shape of the queries is known."""
        num_heads, width = query.shape[1], cache.value.shape[3]
        group = num_heads // cache.num_kv_heads
        num_rows = fit_rows(self._chunk_rows, query)
        if self._is_free and fits(query, PagedLayer(cache)):
            num_rows = PROMPT_TILES.rows
        if cache.is_latent:
            group, num_rows = heads_per_tile(num_heads), LEAST_ROWS
        tiles = QueryTiles.of(self._metadata, self._chunks, group, num_rows, self._device)
        counts = self._attention.seen_splits(self._metadata.seq_lens[self._which])
        partials = self._attention.scratch_for(int(counts.sum()), num_heads, width)
        self._passes = [
            self._decodes(self._which[begin:end], counts[begin:end])
            for begin, end in cut_passes(counts, partials.num_splits)
        ]
        return tiles, partials

    def _decodes(self, which: Int64Array, counts: Int64Array) -> Decodes:
        rows = (which.astype(np.int32), first_splits(counts).astype(np.int32))
        which_there, firsts = rows_to_device(rows, self._device)
        return Decodes(which_there, firsts, int(counts.max()))
