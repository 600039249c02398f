"""A model backend that runs decodes as CUDA graphs, and all other steps through TorchBackend."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.backend.backend import DecodeBounds, StepBatch
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.cuda.capture import CudaCapture
from pagewire_worker.cuda.decode_graphs import CapturableAttention, DecodeGraphs, decode_buckets
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.models.adapted_decoder import AdaptedDecoder
from pagewire_worker.models.torch_backend import DecoderModel, TorchBackend
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens


class CudaBackend:
    """Runs steps of decodes only as graphs, and other steps through `eager`.

    Args:
        graphs: Captured decodes; None for no graphs.
    """

    def __init__(
        self, eager: TorchBackend, graphs: DecodeGraphs | None, on_layer: LayerWatch
    ) -> None:
        self._eager = eager
        self._graphs = graphs
        self._on_layer = on_layer
        self._num_layers = len(eager.kv_cache.layers)

    @property
    def kv_cache(self) -> KvCache:
        """The blocks that the model reads and writes."""
        return self._eager.kv_cache

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use; a graph starts the same kernels."""
        return self._eager.kernel_set

    @property
    def is_exact(self) -> bool:
        """Whether outputs do not depend on the batch."""
        return self._eager.is_exact

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        return self._eager.embedding_size

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step; states from a graph are valid until the next step."""
        graphs = self._graphs
        # A caller that takes layers one by one needs each layer as soon as it is computed.
        if graphs is None or self._on_layer.is_awaited or not graphs.takes(batch):
            return self._eager.forward(batch)
        hidden = graphs.run(batch)
        for _ in range(self._num_layers):
            self._on_layer()
        return hidden

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        faults = torch.empty(len(hidden), dtype=torch.int64, device=hidden.device)
        token_ids = greedy_tokens(self._eager.narrow_logits(hidden, adapters), faults=faults)
        return SampledTokens(token_ids, faults=faults)

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden]."""
        return self._eager.logits(hidden, adapters)


BYTES_PER_GRAPH = 8 * 1024**2
"""Memory of the driver for a graph of some hundred kernels."""

FLOAT_BYTES = 4

TABLE_ENTRY_BYTES = 4

ROWS_AT_ONCE = 8
"""Intermediate values of a layer, counted in rows of its greatest width."""


def captured(
    eager: TorchBackend,
    model: DecoderModel,
    attentions: Mapping[AttentionKind, CapturableAttention],
    bounds: DecodeBounds,
    on_layer: LayerWatch,
    advance: Callable[[], None],
) -> CudaBackend:
    """Return `eager` with the decodes of `model` captured.

    Args:
        model, attentions: The model and attention of `eager`.
        bounds: Upper bounds of captured decodes.
        on_layer: Called for each layer of a step.
        advance: Called during the capture, as a sign of progress.
    """
    graphs = DecodeGraphs(
        model=model,
        kv_cache=eager.kv_cache,
        attentions=attentions,
        bounds=bounds,
        capture=CudaCapture(),
        advance=advance,
        takes_adapters=isinstance(model, AdaptedDecoder),
    )
    return CudaBackend(eager, graphs, on_layer)


def graph_bytes(
    plan: ModelPlan, bounds: DecodeBounds, block_size: int, *, takes_adapters: bool = False
) -> int:
    """Return roughly the memory of `captured`; `block_size` is that of the cache."""
    chosen = plan.num_chosen * (max(plan.inner_sizes) * 3 + plan.hidden_size)
    widest = max(chosen, max(plan.inner_sizes) * 2, plan.attention.sizes[0] * 3)
    values = bounds.max_num_seqs * widest * ROWS_AT_ONCE * FLOAT_BYTES
    graphs = len(decode_buckets(bounds.max_num_seqs)) * BYTES_PER_GRAPH
    graphs *= 2 if takes_adapters else 1
    tables = bounds.max_num_seqs * -(-bounds.max_model_len // block_size) * TABLE_ENTRY_BYTES
    return tables * len(plan.cache_shape.layer_groups) + values + graphs
