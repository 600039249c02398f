"""The decoder over batches of decodes, captured for each bucket of sizes."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.attention.triton import TritonAttention
from pagewire_worker.backend import DecodeBounds, StepBatch
from pagewire_worker.cuda.buckets import bucket_of, decode_buckets
from pagewire_worker.cuda.capture import Capture, CapturedWork
from pagewire_worker.cuda.static_inputs import StaticInputs
from pagewire_worker.kv_cache import KvCache
from pagewire_worker.models.config import ModelConfig
from pagewire_worker.torch_backend import DecoderModel
from pagewire_worker.triton_kernels.decode_attention import Partials
from pagewire_worker.triton_kernels.paged_sequences import Cut

_logger = logging.getLogger(__name__)

FLOAT_BYTES = 4

MAX_PARTIAL_BYTES = 256 * 1024**2
"""Bounds the scratch memory of attention; what does not fit in it is not captured."""


@dataclass(frozen=True, slots=True)
class _Graph:
    """One bucket.

    Attributes:
        work: Computes the states from the static inputs; keeps what it reads.
        states: What the last replay has computed, one tensor [size, hidden].
        longest: Most tokens of a sequence.
    """

    work: CapturedWork
    states: list[Tensor]
    longest: int


class DecodeGraphs:
    """Captures all buckets when it is made, the largest first: others fit in its memory.

    Args:
        model, kv_cache, attention: What is captured.
        bounds: The largest bucket.
        capture: How.
        advance: Called after each bucket; shows that loading moves on.
    """

    def __init__(
        self,
        model: DecoderModel,
        kv_cache: KvCache,
        attention: TritonAttention,
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
        self._scratch = torch.empty(
            scratch_floats(model.config, bounds, attention.cut),
            dtype=torch.float32,
            device=self._device,
        )
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
        """Return whether `batch` is one of decodes that was captured."""
        if not batch.is_decode or batch.attention.resident is None:
            return False
        size = bucket_of(self._buckets, len(batch.token_ids))
        if size is None:
            return False
        return int(batch.attention.seq_lens.max()) <= self._graphs[size].longest

    def run(self, batch: StepBatch) -> Tensor:
        """Return the states of a batch it takes, [sequences, hidden]; they hold until the next."""
        num_seqs = len(batch.token_ids)
        size = bucket_of(self._buckets, num_seqs)
        assert size is not None
        self._inputs.fill(batch, size)
        graph = self._graphs[size]
        graph.work.replay()
        return graph.states[0][:num_seqs]

    def _captured(self, size: int, capture: Capture) -> _Graph:
        self._inputs.clear(size)
        batch = self._inputs.batch(size)
        num_splits = _num_splits(self._model.config, self._bounds, self._attention.cut, size)
        attend = self._attention.prepare_decodes(
            self._inputs.sequences(size), self._partials(size, num_splits)
        )
        states: list[Tensor] = []

        def work() -> None:
            layers = self._kv_cache.layers
            states[:] = [self._model.forward(batch, layers, attend, lambda: None)]

        return _Graph(capture(work), states, num_splits * self._attention.cut.split)

    def _partials(self, size: int, num_splits: int) -> Partials:
        """Return views of the scratch memory, which all buckets share."""
        config = self._model.config
        shape = (size, config.num_heads, num_splits)
        num_rows = size * config.num_heads * num_splits
        ends = (num_rows * config.head_dim, num_rows, num_rows)
        sums, greatest, total = self._scratch[: sum(ends)].split(ends)
        return Partials(sums.view(*shape, config.head_dim), greatest.view(shape), total.view(shape))


def scratch_floats(config: ModelConfig, bounds: DecodeBounds, cut: Cut) -> int:
    """Return the floats of scratch memory that the largest bucket takes."""
    return max(
        _per_split(config, size) * _num_splits(config, bounds, cut, size)
        for size in decode_buckets(bounds.max_num_seqs)
    )


def _num_splits(config: ModelConfig, bounds: DecodeBounds, cut: Cut, size: int) -> int:
    """Return the splits for which there is scratch memory."""
    fitting = MAX_PARTIAL_BYTES // (FLOAT_BYTES * _per_split(config, size))
    return max(1, min(cut.num_splits(bounds.max_model_len), fitting))


def _per_split(config: ModelConfig, size: int) -> int:
    return size * config.num_heads * (config.head_dim + 2)
