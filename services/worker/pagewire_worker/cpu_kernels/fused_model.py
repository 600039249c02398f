"""Holds a decoder whose weights are packed for kernels, before it has a cache."""

from dataclasses import dataclass

from pagewire_worker.backend.adapters import AdapterSlots
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.head import ClassificationHead
from pagewire_worker.backend.source import (
    Uncaptured,
)
from pagewire_worker.backend.stage_ends import WHOLE_MODEL, StageEnds
from pagewire_worker.cpu_kernels.adapter_store import FusedAdapterStore
from pagewire_worker.cpu_kernels.backend import FusedBackend, KernelRanks
from pagewire_worker.cpu_kernels.library import KernelPool
from pagewire_worker.cpu_kernels.packed_layers import FusedDecoder
from pagewire_worker.kv.kv_cache import CacheShape, KvCache
from pagewire_worker.kv.layer_watch import LayerWatch


@dataclass(frozen=True, slots=True)
class FusedModel(Uncaptured):
    """A decoder with its weights packed for kernels."""

    decoder: FusedDecoder
    pool: KernelPool
    classifier: ClassificationHead | None
    store: FusedAdapterStore | None = None
    table: AdapterSlots | None = None
    ranks: KernelRanks | None = None
    ends: StageEnds = WHOLE_MODEL

    @property
    def head(self) -> ClassificationHead | None:
        """Its classification head."""
        return self.classifier

    @property
    def adapters(self) -> AdapterSlots | None:
        """Its adapter slots."""
        return self.table

    @property
    def cache_shape(self) -> CacheShape:
        """The shape of the KV cache per position."""
        return self.decoder.plan.cache_shape

    def backend(self, kv_cache: KvCache, on_layer: LayerWatch) -> ModelBackend:
        """Return the decoder over `kv_cache`."""
        return FusedBackend(
            self.decoder,
            kv_cache,
            self.pool,
            on_layer,
            adapters=self.store,
            ranks=self.ranks,
            ends=self.ends,
        )
