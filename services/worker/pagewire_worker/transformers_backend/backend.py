"""A model backend that runs a model of transformers over the paged KV cache."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.attention import AttentionBackend, AttentionKind, StepAttention
from pagewire_worker.backend.backend import StepBatch
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.kv.kv_cache import KvCache, LayerCache
from pagewire_worker.sampling.sampler import likeliest
from pagewire_worker.transformers_backend.interface import MaskFunction, handled_by
from pagewire_worker.transformers_backend.model import SplitModel
from pagewire_worker.transformers_backend.probe import AttentionLayer, MaskMarkers
from pagewire_worker.transformers_backend.refusal import Refusal


class PagedStep:
    """Handles the calls of one forward pass, which come in the recorded order.

    Args:
        caches: One per layer.
        attends: Attention prepared for this step, by kind.
        slot_mapping: [tokens] int64, slots of keys and values.
        faults: [tokens] int64 or None, as in StepBatch.
        markers: Stand-ins for masks.
    """

    def __init__(
        self,
        *,
        layers: Sequence[AttentionLayer],
        caches: Sequence[LayerCache],
        attends: Mapping[AttentionKind, StepAttention],
        slot_mapping: Tensor,
        faults: Tensor | None,
        markers: MaskMarkers,
        on_layer: Callable[[], None],
    ) -> None:
        self._layers = layers
        self._caches = caches
        self._attends = attends
        self._slot_mapping = slot_mapping
        self._faults = faults
        self._markers = markers
        self._on_layer = on_layer
        self._num_done = 0

    def attend(
        self,
        module: Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Write keys and values of the step, then attend over the cache.

        Raises:
            Refusal: The model attends in another way than when it was examined.
        """
        if self._num_done == len(self._layers):
            raise Refusal("more layers attend than when it was loaded")
        layer, cache = self._layers[self._num_done], self._caches[self._num_done]
        layer.check_again(module, options)
        if self._markers.window_of(mask) != layer.kind.window:
            raise Refusal("its mask is another than when it was loaded")
        dtype = cache.key.dtype
        sides = _flat(key).to(dtype), _flat(value).to(dtype)
        cache.write(self._slot_mapping, *sides, self._faults)
        attended = self._attends[layer.kind](_flat(query).to(dtype), cache)
        self._num_done += 1
        self._on_layer()
        return attended.to(query.dtype).unsqueeze(0)

    def mask(self, visible: MaskFunction, window: int | None) -> Tensor:
        """Return the stand-in for a mask: its visible keys were checked at the start."""
        return self._markers.of(window)

    def finish(self) -> None:
        """Raise Refusal unless every layer attended."""
        if self._num_done != len(self._layers):
            raise Refusal(f"{self._num_done} of {len(self._layers)} layers attended")


def _flat(states: Tensor) -> Tensor:
    """Return [tokens, heads, d] from [1, heads, tokens, d]."""
    return states[0].transpose(0, 1)


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

    def greedy(self, hidden: Tensor, adapters: AdapterRows | None = None) -> SampledTokens:
        """Return the most likely token per row of [rows, hidden], the lowest id of equal ones."""
        return likeliest(self.logits(hidden, adapters))

    def logits(self, hidden: Tensor, adapters: AdapterRows | None = None) -> Tensor:
        """Return logits [rows, vocab] in float32 for hidden states [rows, hidden]."""
        assert adapters is None, "models of transformers take no adapters"
        return self._model.logits(hidden)
