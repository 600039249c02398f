"""Attention in one step of a transformers model: writes the paged cache, and attends over it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module

from pagewire_worker.backend.attention import AttentionKind, StepAttention
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.transformers_backend.interface import MaskFunction
from pagewire_worker.transformers_backend.probe import AttentionLayer, MaskMarkers
from pagewire_worker.transformers_backend.refusal import Refusal


class PagedStep:
    """Handles the calls of one forward pass, which come in the recorded order.

    Args:
        layers: The expected calls.
        caches: One per layer.
        attends: Attention prepared for this step, by kind.
        slot_mapping: [tokens] int64, slots of keys and values.
        faults: [tokens] int64 or None, as in StepBatch.
        markers: Stand-ins for masks.
        on_layer: Called after each layer.
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
