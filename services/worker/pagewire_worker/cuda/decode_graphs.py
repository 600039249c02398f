"""Captures the decoder over batches of decodes, once per bucket of batch sizes."""

import bisect
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from pagewire_worker.backend.attention import Int64Array, StepAttention
from pagewire_worker.backend.backend import DecodeBounds, StepBatch
from pagewire_worker.cuda.capture import Capture, CapturedWork
from pagewire_worker.cuda.static_inputs import StaticInputs
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.models.torch_backend import DecoderModel
from pagewire_worker.triton_kernels.paged_sequences import PagedSequences

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

    def takes_at_once(self, seq_lens: Int64Array) -> bool:
        """Return whether the reserved memory is enough for decodes of such lengths."""
        ...

    def seen_splits(self, seq_lens: Int64Array) -> Int64Array:
        """Return how many splits a decode of each sequence sees, [num_seqs]."""
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
        model, kv_cache, attention: The captured model. All buckets share the reserved scratch
            memory of `attention`.
        bounds: The largest bucket.
        advance: Called after each bucket, to report progress.
    """

    def __init__(
        self,
        *,
        model: DecoderModel,
        kv_cache: KvCache,
        attention: CapturableAttention,
        bounds: DecodeBounds,
        capture: Capture,
        advance: Callable[[], None],
    ) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._attention = attention
        self._bounds = bounds
        self._device = kv_cache.layers[0].key.device
        max_blocks = -(-bounds.max_model_len // kv_cache.block_size)
        self._inputs = StaticInputs(bounds.max_num_seqs, max_blocks, self._device)
        self._buckets = decode_buckets(bounds.max_num_seqs)
        self._graphs: dict[int, _Graph] = {}
        began = time.perf_counter()
        for size in reversed(self._buckets):
            self._graphs[size] = self._captured(size, capture)
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
        if bucket_of(self._buckets, len(batch.token_ids)) is None:
            return False
        return self._attention.takes_at_once(batch.attention.seq_lens)

    def run(self, batch: StepBatch) -> Tensor:
        """Return the states of such a batch, [sequences, hidden]; valid until the next call."""
        num_seqs = len(batch.token_ids)
        size = bucket_of(self._buckets, num_seqs)
        assert size is not None
        counts = self._attention.seen_splits(batch.attention.seq_lens)
        self._inputs.fill(batch, size, counts)
        graph = self._graphs[size]
        graph.work.replay()
        if batch.faults is not None:
            batch.faults.copy_(graph.faults[:num_seqs])
        return graph.states[0][:num_seqs]

    def _captured(self, size: int, capture: Capture) -> _Graph:
        self._inputs.clear(size)
        batch = self._inputs.batch(size)
        attend = self._attention.prepare_decodes(
            self._inputs.sequences(size),
            self._inputs.first_splits(size),
            self._bounds.max_model_len,
        )
        states: list[Tensor] = []

        def work() -> None:
            layers = self._kv_cache.layers
            assert batch.faults is not None
            batch.faults.zero_()
            states[:] = [self._model.forward(batch, layers, attend, lambda: None)]

        assert batch.faults is not None
        return _Graph(capture(work), states, batch.faults)
