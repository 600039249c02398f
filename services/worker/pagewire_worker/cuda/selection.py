"""Captures the decodes of a model, and estimates the memory that this takes."""

from collections.abc import Callable

from pagewire_worker.backend.backend import DecodeBounds
from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.cuda.backend import CudaBackend
from pagewire_worker.cuda.capture import CudaCapture
from pagewire_worker.cuda.decode_graphs import CapturableAttention, DecodeGraphs, decode_buckets
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.models.torch_backend import DecoderModel, TorchBackend

BYTES_PER_GRAPH = 8 * 1024**2
"""Memory of the driver for a graph of some hundred kernels."""

FLOAT_BYTES = 4

TABLE_ENTRY_BYTES = 4

ROWS_AT_ONCE = 8
"""Intermediate values of a layer, counted in rows of its greatest width."""


def captured(
    eager: TorchBackend,
    model: DecoderModel,
    attention: CapturableAttention,
    bounds: DecodeBounds,
    on_layer: LayerWatch,
    advance: Callable[[], None],
) -> CudaBackend:
    """Return `eager` with the decodes of `model` captured.

    Args:
        model, attention: The model and attention of `eager`.
        bounds: Upper bounds of captured decodes.
        on_layer: Called for each layer of a step.
        advance: Called during the capture, as a sign of progress.
    """
    graphs = DecodeGraphs(
        model=model,
        kv_cache=eager.kv_cache,
        attention=attention,
        bounds=bounds,
        capture=CudaCapture(),
        advance=advance,
    )
    return CudaBackend(eager, graphs, on_layer)


def graph_bytes(config: ModelConfig, bounds: DecodeBounds, block_size: int) -> int:
    """Return roughly the memory of `captured`; `block_size` is that of the cache."""
    widest = max(config.intermediate_size * 2, config.num_heads * config.head_dim * 3)
    values = bounds.max_num_seqs * widest * ROWS_AT_ONCE * FLOAT_BYTES
    graphs = len(decode_buckets(bounds.max_num_seqs)) * BYTES_PER_GRAPH
    tables = bounds.max_num_seqs * -(-bounds.max_model_len // block_size) * TABLE_ENTRY_BYTES
    return tables + values + graphs
