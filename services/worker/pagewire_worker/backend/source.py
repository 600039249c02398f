"""What the loader asks of every way to run a checkpoint. Owns no computation.

A source has understood a checkpoint and loaded nothing; a loaded model has weights and no cache; a
backend has both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from pagewire_worker.backend.backend import DecodeBounds, ModelBackend
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """What is known of a model before its weights are read.

    Attributes:
        architecture: Its name in config.json.
        vocab_size: Token ids there are.
        max_positions: Longest context, or None when config.json does not say.
        dtype: Name of the type the weights were published in, or None.
    """

    architecture: str
    vocab_size: int
    max_positions: int | None
    dtype: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """Where and how a model is to run.

    Attributes:
        device, dtype: Of weights and computation.
        max_model_len: Longest sequence there will be.
        block_size: Tokens per KV block.
        attention_backend, linear_backend, cpu_backend: Names of implementations, or "auto".
        cpu_isa: Instruction set of the kernels for CPUs, or "auto".
        cache_dtype: Of the KV cache; None for `dtype`.
        quantization: Of the weights, made while they are loaded: none, int8, int4 or fp8.
        on_progress: Called with the fraction of the weights that was read.
        load_format: Where weights come from: auto for the checkpoint, dummy for `seed`.
        seed: Of weights that are drawn.
        enforce_eager: Nothing is captured in graphs.
    """

    device: torch.device
    dtype: torch.dtype
    max_model_len: int
    block_size: int
    attention_backend: str
    linear_backend: str
    cpu_backend: str
    on_progress: Callable[[float], None]
    cpu_isa: str = "auto"
    quantization: str = "none"
    load_format: str = "auto"
    seed: int = 0
    enforce_eager: bool = False
    cache_dtype: torch.dtype | None = None


class LoadedReplicaModel(Protocol):
    """Weights in memory."""

    @property
    def cache_shape(self) -> CacheShape:
        """What it keeps per position."""
        ...

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the model over `kv_cache`; `on_layer` is called for each layer of each step."""
        ...

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate what steps within `bounds` share, before the cache takes what is left."""
        ...

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return about how much memory `captured` takes."""
        ...

    def captured(
        self,
        backend: ModelBackend,
        bounds: DecodeBounds,
        on_layer: LayerWatch,
        advance: Callable[[], None],
    ) -> ModelBackend:
        """Return `backend` with what `bounds` allows captured in graphs, or as it is.

        Args:
            backend: Of this model.
            bounds: Most that is captured.
            on_layer: As of `backend`.
            advance: Called while it captures.
        """
        ...


class Uncaptured:
    """The part of a LoadedModel that has no graphs, and shares nothing between steps."""

    __slots__ = ()

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate nothing."""

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return that it takes nothing."""
        return 0

    def captured(
        self,
        backend: ModelBackend,
        bounds: DecodeBounds,
        on_layer: LayerWatch,
        advance: Callable[[], None],
    ) -> ModelBackend:
        """Return `backend` as it is."""
        return backend


class ModelSource(Protocol):
    """A checkpoint that was understood."""

    @property
    def summary(self) -> ModelSummary:
        """What is known of it."""
        ...

    def load(self, settings: LoadSettings) -> LoadedReplicaModel:
        """Read the weights. Raises StartupError."""
        ...
