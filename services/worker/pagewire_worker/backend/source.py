"""Interface between the loader and the ways to run a checkpoint.

A source has read the configuration of a checkpoint. A loaded model has weights and no cache; a
backend has both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from pagewire_worker.backend.adapters import AdapterLimits, AdapterSlots
from pagewire_worker.backend.backend import DecodeBounds, ModelBackend
from pagewire_worker.backend.collectives import ALONE, Collectives
from pagewire_worker.backend.head import ClassificationHead
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """Facts about a model that are known before its weights are read.

    Attributes:
        max_positions: Longest context, or None when config.json does not say.
        dtype: Name of the type the weights were published in, or None.
        first_context: A longest context beyond it changes how all positions are computed; None
            where it does not.
        is_encoder: Whether it computes prompts whole, without a cache, and generates nothing.
        cache_scheme: The KV cache that it was made for, as model_files describes it, or None.
    """

    architecture: str
    vocab_size: int
    max_positions: int | None
    dtype: str | None
    first_context: int | None = None
    is_encoder: bool = False
    cache_scheme: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """Device, types and implementations that a model is loaded for.

    Attributes:
        device, dtype: Device and type of weights and computation.
        max_model_len: Longest sequence.
        attention_backend, linear_backend, cpu_backend: Names of implementations, or "auto".
        cpu_isa: Instruction set of the kernels for CPUs, or "auto".
        cache_dtype: Type of the KV cache; None for `dtype`.
        quantization: Type that weights are turned into while loading: none, int8, int4 or fp8.
        on_progress: Called with the fraction of the weights that has been read.
        load_format: Source of the weights: auto for the checkpoint, dummy for random ones.
        enforce_eager: Whether CUDA graphs are off.
        adapters: Bounds of the adapters that the model takes; None for none.
        sum_slices: Slices of the sums that ranks divide; 1 for none.
        collectives: Of the ranks that compute the model together.
        pools: Threads by what they run; models of one replica share them, since idle ones of
            another pool would take the cores for a while.
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
    adapters: AdapterLimits | None = None
    sum_slices: int = 1
    collectives: Collectives = ALONE
    pools: dict[str, Any] = field(default_factory=dict)


class LoadedReplicaModel(Protocol):
    """A model with its weights in memory."""

    @property
    def cache_shape(self) -> CacheShape:
        """Shape of the cache per position."""
        ...

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head, if it has one."""
        ...

    @property
    def adapters(self) -> AdapterSlots | None:
        """Its adapter slots, if it takes adapters."""
        ...

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the model over `kv_cache`; `on_layer` is called for each layer of each step."""
        ...

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate memory that steps within `bounds` share, before the cache takes the rest."""
        ...

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return roughly how much memory `captured` takes."""
        ...

    def captured(
        self,
        backend: ModelBackend,
        bounds: DecodeBounds,
        on_layer: LayerWatch,
        advance: Callable[[], None],
    ) -> ModelBackend:
        """Return `backend` with decodes within `bounds` captured in graphs, or unchanged.

        Args:
            bounds: Upper bounds of captured decodes.
            on_layer: As of `backend`.
            advance: Called during the capture, as a sign of progress.
        """
        ...


class Uncaptured:
    """Mixin for a loaded model without graphs and without memory that steps share.

    It has no classification head and no adapters, unless a subclass says otherwise.
    """

    __slots__ = ()

    @property
    def head(self) -> ClassificationHead | None:
        """Return no head."""
        return None

    @property
    def adapters(self) -> AdapterSlots | None:
        """Return no adapter slots."""
        return None

    def reserve(self, bounds: DecodeBounds) -> None:
        """Allocate nothing."""

    def graph_bytes(self, bounds: DecodeBounds) -> int:
        """Return 0: there are no graphs."""
        return 0

    def captured(
        self,
        backend: ModelBackend,
        bounds: DecodeBounds,
        on_layer: LayerWatch,
        advance: Callable[[], None],
    ) -> ModelBackend:
        """Return `backend` unchanged."""
        return backend


class ModelSource(Protocol):
    """A checkpoint whose configuration has been read."""

    @property
    def summary(self) -> ModelSummary:
        """Facts about the model."""
        ...

    def load(self, settings: LoadSettings) -> LoadedReplicaModel:
        """Read the weights. Raises StartupError."""
        ...
