"""Attention by Triton kernels over the blocks where they lie: decodes in parallel over splits of
fixed size, chunks in tiles of queries."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.attention.base import AttentionKind, AttentionMetadata, Int64Array
from pagewire_worker.device_copy import to_device
from pagewire_worker.kv_cache import LayerCache
from pagewire_worker.triton_kernels.chunk_attention import QueryTiles, chunk_attention
from pagewire_worker.triton_kernels.decode_attention import (
    LEAST_ROWS,
    Partials,
    decode_attention,
)
from pagewire_worker.triton_kernels.paged_sequences import (
    Cut,
    PagedLayer,
    PagedSequences,
    fitting_rows,
)

CHUNK_ROWS = 64
"""Rows of a tile of a chunk: tokens times query heads of a KV head."""

EXACT_CHUNK_ROWS = LEAST_ROWS
"""The same where bits must not tell a chunk from a decode: as many as a tile of a decode has. More
rows are other instructions, since compute capability 9.0 has some for 64 at least, and nobody
promises that these round partial sums alike."""


class TritonAttention:
    """Kernels of triton_kernels.

    Args:
        device: Where they run; the CPU only in Triton's interpreter.
        kind: How the layers of the model attend.
        cut: How positions are cut.
        chunk_rows: Rows of a tile of a chunk, a power of 2.
    """

    takes_fp8_cache = True

    def __init__(
        self,
        device: torch.device,
        kind: AttentionKind,
        cut: Cut | None = None,
        *,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        self._device = device
        self._kind = kind
        self._cut = Cut() if cut is None else cut
        self._chunk_rows = chunk_rows

    @property
    def name(self) -> str:
        """With what fixes the order of sums."""
        rows = "" if self._chunk_rows == CHUNK_ROWS else f"-{self._chunk_rows}"
        return f"triton-{self._cut.split}-{self._cut.tile}{rows}"

    @property
    def is_batch_invariant(self) -> bool:
        """Whether chunks are computed by the instructions of decodes."""
        return self._chunk_rows == EXACT_CHUNK_ROWS

    def prepare(self, metadata: AttentionMetadata) -> "TritonStep":
        """Copy the small arrays to the device."""
        return TritonStep(metadata, self._device, self._kind, self._cut, self._chunk_rows)

    def prepare_decodes(self, sequences: PagedSequences, partials: Partials) -> "TritonDecodes":
        """Return attention of one token per sequence, for arrays that change between its calls.

        Args:
            sequences: On the device; those of length 0 are padding.
            partials: Scratch; its splits bound the length of a sequence.
        """
        which = torch.arange(len(sequences.seq_lens), dtype=torch.int32, device=self._device)
        return TritonDecodes(sequences, which, partials, self._kind, self._cut)

    @property
    def cut(self) -> Cut:
        """How positions are cut."""
        return self._cut


@dataclass(frozen=True, slots=True)
class TritonDecodes:
    """Attention of decodes; see decode_attention for its attributes."""

    sequences: PagedSequences
    which: Tensor
    partials: Partials
    kind: AttentionKind
    cut: Cut

    def __call__(self, query: Tensor, cache: LayerCache) -> Tensor:
        """Attend over one layer, [tokens, heads, head_dim]."""
        attended = torch.empty_like(query)
        decode_attention(
            query,
            PagedLayer(cache),
            self.sequences,
            self.which,
            attended,
            self.partials,
            self.kind,
            self.cut,
        )
        return attended


class TritonStep:
    """Attention of one step, called once per layer."""

    def __init__(
        self,
        metadata: AttentionMetadata,
        device: torch.device,
        kind: AttentionKind,
        cut: Cut,
        chunk_rows: int,
    ) -> None:
        self._metadata = metadata
        self._chunk_rows = chunk_rows
        self._device = device
        self._kind = kind
        self._cut = cut
        is_decode = metadata.query_lens == 1
        self._chunks: Int64Array = np.flatnonzero(~is_decode)
        decodes = np.flatnonzero(is_decode)
        self._num_splits = cut.num_splits(int(metadata.seq_lens[decodes].max(initial=1)))
        self._decodes = to_device(decodes.astype(np.int32), device)
        self._sequences = PagedSequences.of(metadata, device)
        self._tiles: QueryTiles | None = None
        self._partials: Partials | None = None

    def __call__(self, query: Tensor, cache: LayerCache) -> Tensor:
        """Attend over one layer, [tokens, heads, head_dim]."""
        query = query.contiguous()
        if self._tiles is None or self._partials is None:
            self._tiles, self._partials = self._plan(query, cache)
        attended = torch.empty_like(query)
        layer = PagedLayer(cache)
        decode_attention(
            query,
            layer,
            self._sequences,
            self._decodes,
            attended,
            self._partials,
            self._kind,
            self._cut,
        )
        chunk_attention(query, layer, self._sequences, self._tiles, attended, self._kind, self._cut)
        return attended

    def _plan(self, query: Tensor, cache: LayerCache) -> tuple[QueryTiles, Partials]:
        """Return what all layers share, once their shape is known."""
        _, num_heads, head_dim = query.shape
        group = num_heads // cache.num_kv_heads
        num_rows = fitting_rows(self._chunk_rows, query)
        tiles = QueryTiles.of(self._metadata, self._chunks, group, num_rows, self._device)
        partials = Partials.allocate(
            len(self._decodes), num_heads, self._num_splits, head_dim, self._device
        )
        return tiles, partials
