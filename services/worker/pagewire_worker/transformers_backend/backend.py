"""A model backend that runs a model of transformers over the paged KV cache."""

from collections.abc import Callable, Mapping

from torch import Tensor

from pagewire_worker.backend.attention import AttentionBackend, AttentionKind
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.sampling.sampler import likeliest
from pagewire_worker.transformers_backend.interface import handled_by
from pagewire_worker.transformers_backend.model import SplitModel
from pagewire_worker.transformers_backend.paged_step import PagedStep
from pagewire_worker.transformers_backend.probe import MaskMarkers


class TransformersBackend:
    """A ModelBackend around a model of transformers.

    Args:
        attentions: Implementations of attention, by kind.
        on_layer: Called after each layer, to report progress.
    """

    def __init__(
        self,
        *,
        model: SplitModel,
        kv_cache: KvCache,
        attentions: Mapping[AttentionKind, AttentionBackend],
        version: str,
        on_layer: Callable[[], None],
    ) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._attentions = attentions
        self._version = version
        self._on_layer = on_layer
        self._markers = MaskMarkers(kv_cache.layers[0].key.device)

    @property
    def kv_cache(self) -> KvCache:
        """The blocks that the model reads and writes."""
        return self._kv_cache

    @property
    def kernel_set(self) -> str:
        """Names of the implementations in use."""
        names = sorted({attention.name for attention in self._attentions.values()})
        return f"transformers={self._version},attention={'+'.join(names)}"

    @property
    def is_exact(self) -> bool:
        """Return False: torch does not promise that outputs are independent of the batch."""
        return False

    @property
    def embedding_size(self) -> int:
        """Length of a hidden state."""
        return self._model.hidden_size

    def forward(self, batch: StepBatch) -> Tensor:
        """Run one step and return the hidden states after the last norm, [outputs, hidden]."""
        step = PagedStep(
            layers=self._model.layers,
            caches=self._kv_cache.layers,
            attends={kind: one.prepare(batch.attention) for kind, one in self._attentions.items()},
            slot_mapping=batch.slot_mapping,
            faults=batch.faults,
            markers=self._markers,
            on_layer=self._on_layer,
        )
        with handled_by(step):
            hidden = self._model.hidden_states(batch.token_ids, batch.positions)
        step.finish()
        return hidden.index_select(0, batch.output_rows)

    def greedy(self, hidden: Tensor) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        return likeliest(self.logits(hidden))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden]."""
        return self._model.logits(hidden)
