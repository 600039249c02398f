"""Loads models with the native decoder: config.json, weights, CPU kernels or torch operations."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.attention.registry import AUTO, make_attention, pick_attention
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind
from pagewire_worker.backend.backend import DecodeBounds, ModelBackend, ReservingAttention
from pagewire_worker.backend.head import ClassificationHead
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
from pagewire_worker.layers.fp8 import Capability, check_fp8_cache, device_capability
from pagewire_worker.layers.linear import LinearKind
from pagewire_worker.models.decoder import load_decoder
from pagewire_worker.models.forms import CheckpointForm
from pagewire_worker.models.linear_choice import choose_linears
from pagewire_worker.models.torch_backend import DecoderModel, TorchBackend
from pagewire_worker.models.variants import attention_names, find_variant

_logger = logging.getLogger(__name__)

Builder = Callable[[ModelConfig, WeightReader, LinearKind, int, torch.device], DecoderModel]
"""(shape, weights, linear layers, longest position, device) -> model."""


def _build_triton(
    config: ModelConfig,
    weights: WeightReader,
    linears: LinearKind,
    num_positions: int,
    device: torch.device,
) -> DecoderModel:
    from pagewire_worker.cuda.triton_decoder import load_triton_decoder

    return load_triton_decoder(config, weights, linears, num_positions)


DECODERS: Mapping[str, Builder] = {"torch": load_decoder, "triton": _build_triton}
"""Decoders by the names of models/variants.py; the kernels for CPUs are loaded apart."""


@dataclass(frozen=True, slots=True)
class NativeModel(Uncaptured):
    """A decoder with its weights."""

    decoder: DecoderModel
    attention: AttentionBackend
    linears: LinearKind
    classifier: ClassificationHead | None

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head."""
        return self.classifier

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of the KV cache per position."""
        return self.decoder.config.cache_shape

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate the scratch memory of attention."""
        if isinstance(self.attention, ReservingAttention):
            config = self.decoder.config
            self.attention.reserve(config.num_heads, config.head_dim, bounds)

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the decoder over `kv_cache`."""
        parts = (self.decoder, self.attention, self.linears)
        return TorchBackend(
            model=self.decoder,
            kv_cache=kv_cache,
            attention=self.attention,
            linear_name=self.linears.name,
            on_layer=on_layer,
            is_exact=all(part.is_batch_invariant for part in parts),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaModel(NativeModel):
    """A decoder on CUDA; its decodes are captured in graphs, if that is wanted."""

    enforce_eager: bool
    block_size: int

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return about how much memory `captured` takes."""
        from pagewire_worker.cuda.backend import graph_bytes

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
        from pagewire_worker.cuda.backend import CudaBackend, captured
        from pagewire_worker.cuda.decode_graphs import CapturableAttention

        assert isinstance(backend, TorchBackend)
        if self.enforce_eager:
            return CudaBackend(backend, None, on_layer)
        if not isinstance(self.attention, CapturableAttention):
            raise StartupError(
                f"--attention-backend: {self.attention.name} cannot be captured in graphs, "
                "give it --enforce-eager",
                field="attention_backend",
            )
        return captured(backend, self.decoder, self.attention, bounds, on_layer, advance)


@dataclass(frozen=True, slots=True)
class FusedModel(Uncaptured):
    """A decoder with its weights packed for kernels."""

    decoder: FusedDecoder
    pool: KernelPool
    classifier: ClassificationHead | None

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head."""
        return self.classifier

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of the KV cache per position."""
        return self.decoder.config.cache_shape

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the decoder over `kv_cache`."""
        return FusedBackend(self.decoder, kv_cache, self.pool, on_layer)


@dataclass(frozen=True, slots=True)
class NativeSource:
    """A checkpoint whose config.json the native decoder computes."""

    folder: Path
    config: ModelConfig
    form: CheckpointForm | None = None

    @property
    def summary(self) -> ModelSummary:
        """A description for the log."""
        return ModelSummary(
            architecture=self.form.architecture if self.form else self.config.architecture,
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
        name = self._attention_name(settings, capability)
        variant = find_variant(
            architecture=self.config.architecture,
            device=settings.device.type,
            attention=name,
            quantization=settings.quantization,
        )
        layers = variant.linears[settings.quantization]
        linears = choose_linears(layers, self.config, settings, capability)
        attention = make_attention(
            name,
            settings.device,
            settings.dtype,
            settings.block_size,
            AttentionKind(window=self.config.sliding_window),
            exact=linears.is_batch_invariant,
        )
        if settings.cache_dtype == FP8:
            check_fp8_cache(settings.device, capability, attention)
        reader = open_weights(self.folder, settings)
        build = DECODERS[variant.decoder]
        weights = self._decoder_weights(reader)
        decoder = build(self.config, weights, linears, settings.max_model_len, settings.device)
        head = self._load_head(reader)
        reader.finish()
        if settings.device.type in variant.graphs:
            return CudaModel(
                decoder=decoder,
                attention=attention,
                linears=linears,
                classifier=head,
                enforce_eager=settings.enforce_eager,
                block_size=settings.block_size,
            )
        return NativeModel(decoder, attention, linears, head)

    def _attention_name(self, settings: LoadSettings, capability: Capability | None) -> str:
        """Return the implementation of attention that is asked for, or for "auto" the fastest."""
        if settings.attention_backend != "auto":
            return settings.attention_backend
        picked = pick_attention("auto", capability)
        name = AUTO if picked == "auto" else picked
        architecture = self.config.architecture
        if name == AUTO or name in attention_names(architecture, settings.device.type):
            return name
        _logger.info("%s attends by %s: no decoder of it takes %s", architecture, AUTO, name)
        return AUTO

    def _load_fused(self, pool: KernelPool, settings: LoadSettings) -> LoadedReplicaModel:
        reader = open_weights(self.folder, settings)
        decoder = load_fused_decoder(
            self.config,
            self._decoder_weights(reader),
            pool,
            settings.dtype,
            settings.quantization,
            settings.max_model_len,
        )
        head = self._load_head(reader)
        reader.finish()
        return FusedModel(decoder, pool, head)

    def _decoder_weights(self, reader: WeightReader) -> WeightReader:
        return reader if self.form is None else self.form.decoder_weights(reader)

    def _load_head(self, reader: WeightReader) -> ClassificationHead | None:
        return None if self.form is None else self.form.load_head(reader, self.config.hidden_size)
