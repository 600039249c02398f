"""Captures the decoder over batches of decodes, once per bucket of batch sizes."""

import bisect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.adapters import NO_ADAPTER, AdapterRows
from pagewire_worker.backend.attention import (
    AttentionKind,
    AttentionMetadata,
    Int64Array,
    StepAttention,
)
from pagewire_worker.backend.backend import DecodeBounds, GroupBatch, StepBatch
from pagewire_worker.backend.device_copy import aligned, into, packed_rows
from pagewire_worker.cuda.capture import Capture, CapturedWork
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.models.torch_backend import DecoderModel, by_layer
from pagewire_worker.triton_kernels.decode_attention import first_splits
from pagewire_worker.triton_kernels.paged_sequences import PagedSequences

NOWHERE = -1
"""Slot of a padding row, whose keys and values are not written."""

LENGTH_BYTES = 4


class StaticInputs:
    """Inputs of up to `max_num_seqs` decodes; smaller batches use the first rows.

    Args:
        max_blocks: Blocks of the longest sequence.
        num_groups: Cache groups.
    """

    def __init__(
        self, max_num_seqs: int, max_blocks: int, device: torch.device, num_groups: int = 1
    ) -> None:
        self._device = device
        self._token_ids, self._positions = torch.zeros(
            (2, max_num_seqs), dtype=torch.int64, device=device
        )
        self._slot_mappings = [torch.full_like(self._positions, NOWHERE) for _ in range(num_groups)]
        self._rows = torch.arange(max_num_seqs + 1, dtype=torch.int64, device=device)
        # For each size of a batch its lengths, then its first splits: one copy fills both.
        num_lengths = 2 * aligned(max_num_seqs, LENGTH_BYTES)
        self._lengths = torch.zeros(num_lengths, dtype=torch.int32, device=device)
        self._faults = torch.zeros_like(self._positions)
        self._adapters = torch.full_like(self._positions, NO_ADAPTER)
        self._query_starts = self._rows.to(torch.int32)
        table = torch.zeros((max_num_seqs, max_blocks), dtype=torch.int32, device=device)
        self._tables = [table, *(torch.zeros_like(table) for _ in range(num_groups - 1))]

    def sequences(self, size: int, group: int = 0) -> PagedSequences:
        """Return the arrays of the first `size` sequences, with the tables of a cache group."""
        return PagedSequences(
            self._query_starts[: size + 1], self._lengths[:size], self._tables[group][:size]
        )

    def first_splits(self, size: int) -> Tensor:
        """Return the first split of each of the first `size` sequences, [size] int32."""
        begin = aligned(size, LENGTH_BYTES)
        return self._lengths[begin : begin + size]

    def batch(self, size: int, *, has_adapters: bool = False) -> StepBatch:
        """Return the batch of the first `size` rows, with empty attention metadata."""
        nothing = np.zeros(0, dtype=np.int64)
        metadata = AttentionMetadata(nothing, nothing, nothing.reshape(0, 0))
        first, *further = (GroupBatch(one[:size], metadata) for one in self._slot_mappings)
        return StepBatch(
            token_ids=self._token_ids[:size],
            positions=self._positions[:size],
            slot_mapping=first.slot_mapping,
            output_rows=self._rows[:size],
            attention=metadata,
            is_decode=True,
            faults=self._faults[:size],
            further_groups=tuple(further),
            adapters=AdapterRows(self._adapters[:size], ()) if has_adapters else None,
        )

    def fill(self, batch: StepBatch, size: int, num_splits: Int64Array) -> None:
        """Copy `batch`, whose block tables are resident, to the first rows of `size`.

        The other rows become padding. Each sequence reads `num_splits` [num_seqs] splits.
        """
        resident = batch.attention.resident
        assert resident is not None
        num_seqs = len(resident.slots)
        # Padding rows keep the tokens and positions of an earlier step: any valid ones will do.
        self._token_ids[:num_seqs].copy_(batch.token_ids)
        self._positions[:num_seqs].copy_(batch.positions)
        if batch.adapters is not None:
            self._adapters[:num_seqs].copy_(batch.adapters.slots)
            self._adapters[num_seqs:size].fill_(NO_ADAPTER)
        seq_lens, firsts = np.zeros((2, size), dtype=np.int32)
        seq_lens[:num_seqs] = batch.attention.seq_lens
        firsts[:num_seqs] = first_splits(num_splits)
        packed, _ = packed_rows((seq_lens, firsts))
        into(packed, self._lengths[: len(packed)])
        for own, mapping, tables in zip(
            batch.groups, self._slot_mappings, self._tables, strict=True
        ):
            mapping[:num_seqs].copy_(own.slot_mapping)
            if num_seqs < size:
                mapping[num_seqs:size].fill_(NOWHERE)
            rows = own.attention.resident
            assert rows is not None
            torch.index_select(rows.tables, 0, rows.index, out=tables[:num_seqs])

    def clear(self, size: int) -> None:
        """Make the first `size` rows padding."""
        for mapping in self._slot_mappings:
            mapping[:size].fill_(NOWHERE)
        self._lengths.zero_()
        self._adapters.fill_(NO_ADAPTER)
        for tensor in (self._token_ids, self._positions, *self._tables):
            tensor[:size].zero_()


FIRST = (1, 2, 4)
FINE_STEP, FINE_END = 8, 256
COARSE_STEP = 16


def decode_buckets(max_num_seqs: int) -> tuple[int, ...]:
    """Return the sizes up to `max_num_seqs`, rising: 1, 2, 4, every 8th to 256, every 16th beyond.

    A batch takes the smallest size that holds it, so up to 256 at most 7 rows are padding. The
    largest size is `max_num_seqs` itself.
    """
    fine = range(FINE_STEP, FINE_END + 1, FINE_STEP)
    coarse = range(FINE_END + COARSE_STEP, max_num_seqs + 1, COARSE_STEP)
    sizes = {size for size in (*FIRST, *fine, *coarse) if size < max_num_seqs}
    return (*sorted(sizes), max_num_seqs)


def bucket_of(buckets: Sequence[int], num_seqs: int) -> int | None:
    """Return the smallest of `buckets` that holds `num_seqs`; None if no bucket does."""
    place = bisect.bisect_left(buckets, num_seqs)
    return buckets[place] if place < len(buckets) else None


_logger = logging.getLogger(__name__)


@runtime_checkable
class CapturableAttention(Protocol):
    """Attention whose decodes can be captured: TritonAttention says what its methods do."""

    def takes_at_once(self, seq_lens: Int64Array, size: int | None = None) -> bool:
        """Return whether the reserved memory is enough for decodes of such lengths, of `size`."""
        ...

    def seen_splits(self, seq_lens: Int64Array, size: int | None = None) -> Int64Array:
        """Return how many splits a decode of each sequence sees in a batch of `size`."""
        ...

    def prepare_decodes(
        self, sequences: PagedSequences, firsts: Tensor, max_model_len: int
    ) -> StepAttention:
        """Return attention of one token per sequence, for arrays that change between its calls."""
        ...


@dataclass(frozen=True, slots=True)
class _Graph:
    """One bucket.

    Attributes:
        work: Computes the states from the static inputs, and keeps these alive.
        states: Result of the last replay, one tensor [size, hidden].
        faults: Faults of its tokens, [size].
    """

    work: CapturedWork
    states: list[Tensor]
    faults: Tensor


class DecodeGraphs:
    """Captures all buckets when it is made, the largest first: smaller ones reuse its memory.

    Args:
        model, kv_cache, attentions: The captured model. All buckets and all kinds of attention
            share one reserved scratch memory.
        bounds: The largest bucket.
        takes_adapters: Whether each bucket is captured once more, for steps with adapters.
        advance: Called after each bucket, to report progress.
    """

    def __init__(
        self,
        *,
        model: DecoderModel,
        kv_cache: KvCache,
        attentions: Mapping[AttentionKind, CapturableAttention],
        bounds: DecodeBounds,
        capture: Capture,
        advance: Callable[[], None],
        takes_adapters: bool = False,
    ) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._attentions = attentions
        self._bounds = bounds
        self._device = kv_cache.layers[0].key.device
        max_blocks = -(-bounds.max_model_len // kv_cache.block_size)
        self._inputs = StaticInputs(
            bounds.max_num_seqs, max_blocks, self._device, kv_cache.num_groups
        )
        self._buckets = decode_buckets(bounds.max_num_seqs)
        self._kinds = (False, True) if takes_adapters else (False,)
        self._graphs: dict[tuple[int, bool], _Graph] = {}
        began = time.perf_counter()
        for size in reversed(self._buckets):
            for has_adapters in self._kinds:
                self._graphs[size, has_adapters] = self._captured(size, capture, has_adapters)
                advance()
        _logger.info(
            "captured decodes of %d sizes in %.1f s",
            len(self._buckets),
            time.perf_counter() - began,
        )

    def takes(self, batch: StepBatch) -> bool:
        """Return whether `batch` consists of decodes that were captured."""
        if not batch.is_decode or batch.attention.resident is None:
            return False
        size = bucket_of(self._buckets, len(batch.token_ids))
        if size is None or (batch.adapters is not None) not in self._kinds:
            return False
        seq_lens = batch.attention.seq_lens
        return all(one.takes_at_once(seq_lens, size) for one in self._attentions.values())

    def run(self, batch: StepBatch) -> Tensor:
        """Return the states of such a batch, [sequences, hidden]; valid until the next call."""
        num_seqs = len(batch.token_ids)
        size = bucket_of(self._buckets, num_seqs)
        assert size is not None
        seq_lens = batch.attention.seq_lens
        seen = [one.seen_splits(seq_lens, size) for one in self._attentions.values()]
        # A kind with a window leaves some of the memory that it is given unused.
        counts: Int64Array = np.maximum.reduce(seen)
        self._inputs.fill(batch, size, counts)
        graph = self._graphs[size, batch.adapters is not None]
        graph.work.replay()
        if batch.faults is not None:
            batch.faults.copy_(graph.faults[:num_seqs])
        return graph.states[0][:num_seqs]

    def _captured(self, size: int, capture: Capture, has_adapters: bool) -> _Graph:
        self._inputs.clear(size)
        batch = self._inputs.batch(size, has_adapters=has_adapters)
        attends = by_layer(
            self._model.plan,
            self._kv_cache,
            lambda kind, group: self._attentions[kind].prepare_decodes(
                self._inputs.sequences(size, group),
                self._inputs.first_splits(size),
                self._bounds.max_model_len,
            ),
        )
        states: list[Tensor] = []

        def work() -> None:
            layers = self._kv_cache.layers
            assert batch.faults is not None
            batch.faults.zero_()
            states[:] = [self._model.forward(batch, layers, attends, lambda: None)]

        assert batch.faults is not None
        return _Graph(capture(work), states, batch.faults)
