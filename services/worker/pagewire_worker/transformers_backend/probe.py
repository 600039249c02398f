"""Examines how a model attends by running it once: heads, window, scale and softcap of each call.

It inspects the arguments of attention, not fields of config.json, whose names and meanings differ.
Options that our attention cannot honour are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.kv.kv_cache import CacheShape
from pagewire_worker.transformers_backend.interface import MaskFunction
from pagewire_worker.transformers_backend.refusal import Refusal

# Some models pass these for other implementations of attention. The mask gives the window of a
# layer and whether it is causal. Positions, lengths and flags add nothing to the batch.
_IGNORED_OPTIONS = frozenset(
    (
        "cache_position",
        "cu_seq_lens_k",
        "cu_seq_lens_q",
        "deterministic",
        "dropout",
        "is_causal",
        "max_length_k",
        "max_length_q",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_embeddings",
        "position_ids",
        "scaling",
        "sliding_window",
        "softcap",
        "use_cache",
    )
)

_FAR = 1 << 20
"""A position behind every chunk or block that a mask may consist of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLayer:
    """One call of attention in a forward pass."""

    module: Module
    num_heads: int
    num_kv_heads: int
    head_dim: int
    kind: AttentionKind

    def check_again(self, module: Module, options: Mapping[str, Any]) -> None:
        """Raise Refusal unless a later call is the same as this one."""
        _check_options(options)
        kind = self.kind
        scores = _scores(options, self.head_dim)
        if module is not self.module or scores != (kind.scale, kind.softcap):
            raise Refusal("it attends otherwise than when it was loaded")


class MaskMarkers:
    """Stand-ins for masks: one tensor [1, 1, 1, 1] for each window.

    They are identified by address, because models may pass on a view of them. A layer that passes
    on another tensor has changed its mask.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._made: dict[int | None, Tensor] = {}

    def of(self, window: int | None) -> Tensor:
        """Return the stand-in for the mask of `window`."""
        if window not in self._made:
            self._made[window] = torch.zeros((1, 1, 1, 1), dtype=torch.bool, device=self._device)
        return self._made[window]

    def window_of(self, mask: Any) -> int | None:
        """Return the window that a layer's mask stands for. Raises Refusal."""
        if mask is None:
            raise Refusal("its layers attend without a mask that transformers made")
        if isinstance(mask, Tensor):
            for window, marker in self._made.items():
                if mask.data_ptr() == marker.data_ptr():
                    return window
        raise Refusal("it makes attention masks or position biases of its own")


class Recorder:
    """Handles the one run in which a model is examined."""

    def __init__(self, device: torch.device) -> None:
        self.layers: list[AttentionLayer] = []
        self._markers = MaskMarkers(device)

    def attend(
        self,
        module: Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Any,
        options: Mapping[str, Any],
    ) -> Tensor:
        """Record a call; the result is not a real attention output."""
        _check_shapes(query, key, value)
        _check_options(options)
        head_dim = query.shape[3]
        scale, softcap = _scores(options, head_dim)
        kind = AttentionKind(self._markers.window_of(mask), scale, softcap)
        layer = AttentionLayer(
            module=module,
            num_heads=query.shape[1],
            num_kv_heads=key.shape[1],
            head_dim=head_dim,
            kind=kind,
        )
        self.layers.append(layer)
        return query.transpose(1, 2)

    def mask(self, visible: MaskFunction, window: int | None) -> Tensor:
        """Check that a mask is causal, with or without a window, and return its stand-in."""
        check_mask(visible, window)
        return self._markers.of(window)


def shared_shape(layers: list[AttentionLayer]) -> CacheShape:
    """Return the cache shape that all layers share; masks decide the window. Raises Refusal."""
    if not layers:
        raise Refusal(
            "none of its layers attends through transformers' attention interface; state-space "
            "models and attention of its own are not supported"
        )
    shapes = {(layer.num_kv_heads, layer.head_dim) for layer in layers}
    if len(shapes) > 1:
        raise Refusal(f"its layers differ in KV heads and head size: {sorted(shapes)}")
    ((num_kv_heads, head_dim),) = shapes
    return CacheShape(len(layers), num_kv_heads, head_dim)


def check_mask(visible: MaskFunction, window: int | None) -> None:
    """Raise Refusal unless `visible` is the causal mask within `window` positions."""
    near = torch.arange(20)
    edge = torch.tensor([-2, -1, 0, 1, 2])
    centers = (1000, _FAR) if window is None else (window, 2 * window, _FAR)
    queries = torch.cat([near, *(center + edge for center in centers)])
    distances = torch.cat([torch.arange(-5, 20), edge + (window or 100), edge + _FAR // 2])
    keys = torch.cat([queries[:, None] - distances, near.expand(len(queries), -1)], dim=1)
    query = queries[:, None].expand_as(keys)
    zero = torch.zeros_like(keys)
    expected = keys <= query
    if window is not None:
        expected &= keys > query - window
    is_real = keys >= 0
    keys = keys.clamp_min(0)
    try:
        seen = visible(zero, zero, query, keys).expand_as(keys)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise Refusal("its attention mask depends on more than positions") from error
    if not torch.equal(seen[is_real], expected[is_real]):
        raise Refusal("its attention mask is neither causal nor a sliding window")


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    if key.shape[3] != value.shape[3] or query.shape[3] != key.shape[3]:
        raise Refusal(
            f"keys and values have heads of different size ({key.shape[3]} and {value.shape[3]})"
        )
    if query.shape[2] != key.shape[2]:
        raise Refusal("it attends to something else than its own tokens (cross attention)")
    if query.shape[1] % key.shape[1]:
        raise Refusal(f"{query.shape[1]} heads do not share {key.shape[1]} KV heads evenly")


def _check_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is not None and name not in _IGNORED_OPTIONS:
            raise Refusal(f"its attention takes {name}, which is not supported")


def _scores(options: Mapping[str, Any], head_dim: int) -> tuple[float | None, float | None]:
    """Return scale and softcap; None for the usual scale."""
    scale, softcap = options.get("scaling"), options.get("softcap")
    for name, value in (("scaling", scale), ("softcap", softcap)):
        if value is not None and not isinstance(value, int | float):
            raise Refusal(f"its attention takes {name} of type {type(value).__name__}")
    if scale == head_dim**-0.5:
        scale = None
    return None if scale is None else float(scale), None if softcap is None else float(softcap)
