"""Runs a packed decoder over its KV cache; one call of the kernels computes several layers."""

import ctypes
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.attention import Int64Array
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.collectives import RankTopology
from pagewire_worker.backend.expert_counts import ExpertCounts
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.backend.stage_ends import WHOLE_MODEL, StageEnds
from pagewire_worker.backend.state_tap import StateTap
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.adapter_store import FusedAdapterStore
from pagewire_worker.cpu_kernels.drafting import DraftArrays
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, pointer
from pagewire_worker.cpu_kernels.operations import LayerOperations
from pagewire_worker.cpu_kernels.packed_layers import FusedDecoder
from pagewire_worker.cpu_kernels.packing import (
    PackedWeights,
    Part,
    Storage,
    WeightArena,
    pack,
)
from pagewire_worker.cpu_kernels.step_memory import LayerWork, StepScratch
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.models.load_parts import embedding_factor
from pagewire_worker.sampling.sampler import likeliest
from pagewire_worker.sampling.sampling_table import SamplingRows

CALL_SECONDS = 0.1
"""Approximate limit of one call: the worker reports progress between two calls."""


@dataclass(frozen=True, slots=True)
class KernelRanks:
    """The ranks that compute a decoder together.

    Attributes:
        group: Address of the PwGroup.
        first_token: Of this rank's rows of the embedding.
        place: Of this rank.
    """

    group: int
    first_token: int
    place: RankTopology


class FusedBackend:
    """Runs a FusedDecoder.

    Blocks of the cache have the layout of kernels/attention/kv.h.

    Args:
        adapters: Of its matrices; None for none.
        ranks: Of which this one has a part of the layers; None for whole ones.
        ends: The other stages of the model.
    """

    def __init__(
        self,
        decoder: FusedDecoder,
        kv_cache: KvCache,
        pool: KernelPool,
        on_layer: LayerWatch,
        *,
        adapters: FusedAdapterStore | None = None,
        ranks: KernelRanks | None = None,
        ends: StageEnds = WHOLE_MODEL,
    ) -> None:
        self._ends = ends
        self._low_size = 0 if adapters is None else adapters.low_size
        self._output_adapters = None if adapters is None else adapters.output
        self._decoder = decoder
        self._kv_cache = kv_cache
        self._pool = pool
        self._probe = numerics_probe(pool, decoder.dtype)
        self._on_layer = on_layer
        multiplier, place = decoder.plan.residual_multiplier, None if ranks is None else ranks.place
        self._operations = [
            LayerOperations(layer, cache, multiplier, adapters, place=place)
            for layer, cache in zip(decoder.layers, kv_cache.layers, strict=True)
        ]
        self._layers = (abi.Layer * len(decoder.layers))(
            *(one.structure() for one in self._operations)
        )
        own = None if adapters is None else ctypes.pointer(adapters.embedding)
        self._model = _model_structure(decoder, kv_cache, self._layers, ranks, own)
        self._scratch = StepScratch(decoder, 0, self._low_size)
        self._prepared_states = torch.empty(0, dtype=torch.uint8)
        self._work = LayerWork.of(decoder.layers[-1])
        # Held while the kernels write them.
        self._expert_counts: ExpertCounts | None = None
        self._tap = StateTap(())

    @property
    def kv_cache(self) -> KvCache:
        """The blocks that the model reads and writes."""
        return self._kv_cache

    @property
    def decoder(self) -> FusedDecoder:
        """The model."""
        return self._decoder

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use, and the numerics of the processor."""
        stored = ",kv=int8" if self._kv_cache.has_scales else ""
        # Parts that became values of the model's type before have other bits as codes.
        is_split = any(len(layer.qkv) > 1 for layer in self._decoder.layers)
        split = ",split" if is_split else ""
        slices = self._decoder.sum_slices
        sums = f",sums={slices}" if slices > 1 else ""
        return f"fused-3,{self._pool.arithmetic},{self._probe}{stored}{split}{sums}"

    @property
    def is_exact(self) -> bool:
        """Outputs are the same bits however a sequence is batched, chunked or resumed."""
        return True

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        return self._decoder.plan.hidden_size

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return the hidden states after the last norm, [outputs, hidden].

        Of a stage before the last, none are returned.
        """
        num_tokens = len(batch.token_ids)
        self._reserve(num_tokens)
        if not self._ends.is_first:
            self._ends.take(self._residual(num_tokens), batch.faults)
        states = torch.empty(
            (len(batch.output_rows), self.embedding_size), dtype=self._decoder.dtype
        )
        arrays = BatchArrays(batch)
        for first, last in self._calls(num_tokens):
            self._pool.step(
                self._model,
                arrays.structure,
                self._scratch.structure,
                first,
                last,
                pointer(states),
            )
            for _ in range(first, last):
                self._on_layer()
            if self._tap.wants(last):
                self._tap.put(last, self._states_into(last, num_tokens))
        if self._ends.is_last:
            return states
        self._ends.pass_on(self._residual(num_tokens), batch.faults)
        return states[:0]

    def draft(self, batch: StepBatch, rows: SamplingRows, num_drafts: int) -> Tensor:
        """Return the next tokens of sequences with one token each, [num_drafts, sequences].

        Each is computed with those before. The arrays of `batch`, whose tables have the blocks of
        all, may change.

        Args:
            rows: How tokens are chosen, without rules; the first for their present positions.
        """
        num_seqs = len(batch.token_ids)
        self._reserve(num_seqs)
        arrays = BatchArrays(batch)
        drafting = DraftArrays(
            decoder=self._decoder,
            vocabulary=self._vocabulary,
            batch=arrays.structure,
            rows=rows,
            prepared=self._prepared(num_seqs),
        )
        found = torch.empty((num_drafts, num_seqs), dtype=torch.int64)
        most = max(1, int(CALL_SECONDS / (len(self._layers) * self._work.seconds(num_seqs))))
        step = (self._model, arrays.structure, self._scratch.structure, drafting.structure)
        for first in range(0, num_drafts, most):
            self._pool.draft(*step, first, min(first + most, num_drafts), pointer(found))
            self._on_layer()
        return found

    def _reserve(self, num_tokens: int) -> None:
        if num_tokens > self._scratch.num_tokens:
            self._scratch = StepScratch(self._decoder, num_tokens, self._low_size)

    def tap(self, layers: Sequence[int]) -> StateTap:
        """Return a tap of the states that come into `layers`; steps make a call up to each."""
        self._tap = StateTap(layers)
        return self._tap

    def count_experts(self) -> ExpertCounts:
        """Count the tokens of each expert from now on."""
        self._expert_counts = ExpertCounts.of(self._decoder.plan.expert_sizes, torch.device("cpu"))
        for layer, tokens in self._expert_counts.tokens.items():
            self._operations[layer].count_experts(tokens)
        return self._expert_counts

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden]."""
        vocabulary = self._vocabulary
        stride = vocabulary.storage.num_outputs
        logits = torch.empty((len(hidden), stride), dtype=torch.float32)
        own = self._row_adapters(adapters)
        self._pool.adapted_linear(
            TYPES[self._decoder.dtype],
            vocabulary.structure(),
            pointer(hidden.contiguous()),
            len(hidden),
            self._prepared(len(hidden)),
            pointer(logits),
            stride,
            None if own is None else own.structure,
        )
        spec = self._decoder.plan.logits
        if not spec.is_plain:
            softcap = spec.softcap or 0.0
            self._pool.finish_logits(pointer(logits), logits.numel(), spec.divisor, softcap)
        return logits[:, : self._decoder.plan.vocab_size]

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        if not self._decoder.plan.logits.is_plain:
            # Different products may give equal logits, and the lowest id of equal ones counts.
            return likeliest(self.logits(hidden, adapters))
        own = self._row_adapters(adapters)
        token_ids = torch.empty(len(hidden), dtype=torch.int64)
        self._pool.adapted_argmax(
            TYPES[self._decoder.dtype],
            self._vocabulary.structure(),
            pointer(hidden.contiguous()),
            len(hidden),
            self._prepared(len(hidden)),
            self._decoder.plan.vocab_size,
            pointer(token_ids),
            None if own is None else own.structure,
        )
        return SampledTokens(token_ids.clamp(min=0), faults=token_ids < 0)

    @property
    def _vocabulary(self) -> PackedWeights:
        assert self._decoder.vocabulary is not None, "the last stage has the logits"
        return self._decoder.vocabulary

    def _residual(self, num_tokens: int) -> Tensor:
        """Return the states between layers of the step that runs, float32 [tokens, hidden]."""
        return self._scratch.residual(num_tokens, self.embedding_size)

    def _row_adapters(self, rows: AdapterRows | None) -> "RowAdapters | None":
        """Return the adapters of rows whose logits are computed; None for none."""
        own = self._output_adapters
        return None if rows is None or own is None else RowAdapters(own, rows)

    def _prepared(self, num_rows: int) -> int | None:
        """Return memory to prepare `num_rows` states in; reused until more rows are needed."""
        needed = num_rows * self._vocabulary.storage.prepared_row_bytes
        if needed > len(self._prepared_states):
            self._prepared_states = torch.empty(needed, dtype=torch.uint8)
        return pointer(self._prepared_states) if needed else None

    def _calls(self, num_tokens: int) -> Iterator[tuple[int, int]]:
        """Return the first layer and the end of each call of a step."""
        most, num_layers = 1, len(self._decoder.layers)
        if not self._on_layer.is_awaited:
            most = max(1, int(CALL_SECONDS / self._work.seconds(num_tokens)))
        if self._tap.wants(0):
            yield 0, 0
        ends = sorted({*(one for one in self._tap.layers if one), num_layers})
        for begin, end in pairwise((0, *ends)):
            for first in range(begin, end, most):
                yield first, min(first + most, end)

    def _states_into(self, layer: int, num_tokens: int) -> Tensor:
        """Return a copy of the states of all tokens, after the last norm behind all layers."""
        decoder = self._decoder
        residual = self._residual(num_tokens)
        if layer < len(decoder.layers) or decoder.norm is None:
            return residual.to(decoder.dtype, copy=True)
        states = torch.empty_like(residual, dtype=decoder.dtype)
        self._pool.norm(
            TYPES[decoder.dtype],
            pointer(residual),
            decoder.norm.structure(),
            num_tokens,
            pointer(states),
        )
        return states


class RowAdapters:
    """The adapters of the rows of a product by itself, held while the kernels read them."""

    def __init__(self, adapters: abi.AdapterArgs, rows: AdapterRows) -> None:
        self._slots = rows.slots.contiguous()
        self._low = torch.empty(len(self._slots), adapters.max_rank, dtype=torch.float32)
        self.structure = abi.RowAdapterArgs(
            ctypes.pointer(adapters), pointer(self._slots), pointer(self._low)
        )


class BatchArrays:
    """The arrays of a batch, held while the kernels read them."""

    def __init__(self, batch: StepBatch) -> None:
        attention = batch.attention
        slot_mappings, block_tables = batch.slot_mapping, attention.block_tables
        if batch.further_groups:
            slot_mappings = torch.stack([one.slot_mapping for one in batch.groups])
            block_tables = np.stack([one.attention.block_tables for one in batch.groups])
        tensors = (batch.token_ids, batch.positions, slot_mappings, batch.output_rows)
        self._tensors = [tensor.contiguous() for tensor in tensors]
        self._arrays: list[Int64Array] = [
            np.ascontiguousarray(array, dtype=np.int64)
            for array in (attention.query_starts, attention.seq_lens, block_tables)
        ]
        self._adapters = batch.adapters
        self.structure = abi.Batch(
            len(batch.token_ids),
            len(attention.seq_lens),
            len(batch.output_rows),
            block_tables.shape[-1],
            *map(pointer, self._tensors),
            *(torch.from_numpy(array).data_ptr() for array in self._arrays),
            # Written by the kernels, so it must not be a copy.
            pointer(batch.faults),
            None if batch.adapters is None else pointer(batch.adapters.slots),
        )


def _model_structure(
    decoder: FusedDecoder,
    kv_cache: KvCache,
    layers: "ctypes.Array[abi.Layer]",
    ranks: KernelRanks | None,
    adapters: "ctypes._Pointer[abi.AdapterArgs] | None",
) -> abi.Model:
    plan, latent = decoder.plan, decoder.plan.attention.latent
    embedding = decoder.embedding
    return abi.Model(
        type=TYPES[decoder.dtype],
        kv_type=abi.INT8 if kv_cache.has_scales else TYPES[decoder.dtype],
        num_layers=len(plan.layers),
        hidden=plan.hidden_size,
        num_heads=plan.attention.num_heads,
        num_kv_heads=plan.attention.num_kv_heads,
        head_dim=plan.attention.head_dim,
        latent_dim=0 if latent is None else latent.rank,
        plain_dim=0 if latent is None else latent.plain_dim,
        block_size=kv_cache.block_size,
        embedding_factor=embedding_factor(plan, decoder.dtype),
        norm=abi.NormArgs() if decoder.norm is None else decoder.norm.structure(),
        embedding=abi.LinearArgs() if embedding is None else embedding.structure(),
        embedding_adapters=adapters,
        layers=layers,
        group=None if ranks is None else ranks.group,
        first_row=0 if ranks is None else ranks.first_token,
        num_rows=plan.vocab_size,
        looks_up=plan.ends.is_first,
        has_end=plan.ends.is_last,
    )


_ROWS, _OUTPUTS, _INPUTS = 5, 64, 256
_GOLDEN = 0.6180339887498949


def numerics_probe(pool: KernelPool, dtype: torch.dtype) -> str:
    """Return a hash of the bits of silu(gate) * up for fixed numbers of type `dtype`."""
    weight = _numbers(_OUTPUTS, _INPUTS).to(dtype)
    storage = Storage.of(TYPES[dtype], _OUTPUTS, _INPUTS)
    linear = pack(pool, WeightArena(storage.num_bytes), storage, [Part(weight)])
    x = _numbers(_ROWS, _INPUTS).to(dtype)
    sums = torch.empty(_ROWS, _OUTPUTS, dtype=torch.float32)
    gated = torch.empty(_ROWS, _OUTPUTS // 2, dtype=dtype)
    structure, kind = linear.structure(), TYPES[dtype]
    pool.linear(kind, structure, pointer(x), _ROWS, None, pointer(sums), _OUTPUTS)
    silu = abi.ActivationArgs.of("silu")
    pool.activate(kind, structure, silu, True, pointer(x), _ROWS, None, pointer(gated))
    both = (sums, gated.float())
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in both)).hexdigest()[:16]


def _numbers(num_rows: int, num_columns: int) -> Tensor:
    """Return numbers between -1 and 1 that are equal on every machine, float64."""
    counts = torch.arange(1, num_rows * num_columns + 1, dtype=torch.float64)
    return (counts * _GOLDEN % 1.0 * 2.0 - 1.0).view(num_rows, num_columns)
