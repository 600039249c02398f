"""Loads models with the native decoder: config.json, weights, CPU kernels or torch operations."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pagewire_worker.attention.registry import make_attention, pick_attention
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind
from pagewire_worker.backend.backend import DecodeBounds, ModelBackend
from pagewire_worker.backend.source import (
    LoadedReplicaModel,
    LoadSettings,
    ModelSummary,
    Uncaptured,
)
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.checkpoint.load_format import open_weights
from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.cpu_kernels.backend import FusedBackend
from pagewire_worker.cpu_kernels.decoder import FusedDecoder
from pagewire_worker.cpu_kernels.decoder import load_decoder as load_fused_decoder
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.cpu_kernels.selection import choose_kernels
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch
from pagewire_worker.layers.fp8 import check_fp8_cache, device_capability
from pagewire_worker.layers.linear import LinearKind
from pagewire_worker.models.linear_choice import choose_linears
from pagewire_worker.models.registry import BUILDERS
from pagewire_worker.models.torch_backend import DecoderModel, TorchBackend

if TYPE_CHECKING:
    from pagewire_worker.attention.triton import TritonAttention


@dataclass(frozen=True, slots=True)
class NativeModel(Uncaptured):
    """A decoder with its weights."""

    decoder: DecoderModel
    attention: AttentionBackend
    linears: LinearKind

    @property
    def cache_shape(self) -> CacheShape:
        """What it keeps per position."""
        return self.decoder.config.cache_shape

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate the scratch memory of attention."""
        # Only its own attention asks for any; Triton is not imported for others.
        if self.attention.takes_fp8_cache:
            config = self.decoder.config
            self._triton.reserve(config.num_heads, config.head_dim, bounds)

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the decoder over `kv_cache`."""
        parts = (self.decoder, self.attention, self.linears)
        return TorchBackend(
            self.decoder,
            kv_cache,
            self.attention,
            self.linears.name,
            on_layer,
            is_exact=all(part.is_batch_invariant for part in parts),
        )

    @property
    def _triton(self) -> "TritonAttention":
        from pagewire_worker.attention.triton import TritonAttention

        assert isinstance(self.attention, TritonAttention)
        return self.attention


@dataclass(frozen=True, slots=True)
class CudaModel(NativeModel):
    """A decoder on Triton's kernels; its decodes are captured in graphs, if that is wanted."""

    enforce_eager: bool
    block_size: int

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return about how much memory `captured` takes."""
        from pagewire_worker.cuda.selection import graph_bytes

        if self.enforce_eager:
            return 0
        return graph_bytes(self.decoder.config, bounds, self.block_size)

    def captured(
        self,
        backend: ModelBackend,
        bounds: DecodeBounds,
        on_layer: LayerWatch,
        advance: Callable[[], None],
    ) -> ModelBackend:
        """Return `backend` with its decodes captured."""
        from pagewire_worker.cuda.backend import CudaBackend
        from pagewire_worker.cuda.selection import captured

        assert isinstance(backend, TorchBackend)
        if self.enforce_eager:
            return CudaBackend(backend, None, on_layer)
        return captured(backend, self.decoder, self._triton, bounds, on_layer, advance)


@dataclass(frozen=True, slots=True)
class FusedModel(Uncaptured):
    """A decoder with its weights packed for kernels."""

    decoder: FusedDecoder
    pool: KernelPool

    @property
    def cache_shape(self) -> CacheShape:
        """What it keeps per position."""
        return self.decoder.config.cache_shape

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the decoder over `kv_cache`."""
        return FusedBackend(self.decoder, kv_cache, self.pool, on_layer)


@dataclass(frozen=True, slots=True)
class NativeSource:
    """A checkpoint whose config.json the native decoder computes."""

    folder: Path
    config: ModelConfig

    @property
    def summary(self) -> ModelSummary:
        """What is known of it."""
        return ModelSummary(
            architecture=self.config.architecture,
            vocab_size=self.config.vocab_size,
            max_positions=self.config.max_position_embeddings,
            dtype=self.config.dtype,
        )

    def load(self, settings: LoadSettings) -> LoadedReplicaModel:
        """Read the weights. Raises StartupError naming the tensor at fault."""
        pool = choose_kernels(self.config, settings)
        if pool is not None:
            return self._load_fused(pool, settings)
        capability = device_capability(settings.device)
        name = pick_attention(settings.attention_backend, capability)
        settings = replace(settings, attention_backend=name)
        linears = choose_linears(self.config, settings, capability)
        attention = make_attention(
            settings.attention_backend,
            settings.device,
            settings.dtype,
            settings.block_size,
            AttentionKind(window=self.config.sliding_window),
            exact=linears.is_batch_invariant,
        )
        if settings.cache_dtype == FP8:
            check_fp8_cache(settings.device, capability, attention)
        reader = open_weights(self.folder, settings)
        decoder = self._load_decoder(reader, linears, settings)
        reader.finish()
        if name == "triton" and settings.device.type == "cuda":
            return CudaModel(
                decoder, attention, linears, settings.enforce_eager, settings.block_size
            )
        return NativeModel(decoder, attention, linears)

    def _load_decoder(
        self, reader: WeightReader, linears: LinearKind, settings: LoadSettings
    ) -> DecoderModel:
        if settings.attention_backend == "triton":
            from pagewire_worker.cuda.triton_decoder import load_triton_decoder

            return load_triton_decoder(self.config, reader, linears, settings.max_model_len)
        build = BUILDERS[self.config.architecture]
        return build(self.config, reader, linears, settings.max_model_len, settings.device)

    def _load_fused(self, pool: KernelPool, settings: LoadSettings) -> LoadedReplicaModel:
        reader = open_weights(self.folder, settings)
        decoder = load_fused_decoder(
            self.config,
            reader,
            pool,
            settings.dtype,
            settings.quantization,
            settings.max_model_len,
        )
        reader.finish()
        return FusedModel(decoder, pool)
