"""Scales of checkpoints for keys and values of 8-bit floats: one of each per layer.

Names: vLLM's kv_cache.py and `maybe_remap_kv_scale_name` of its weight_utils.py. A stored number is
a key or value divided by its scale.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.stored.parts import StoredTensors, part

CACHE_SCALES: Final = (
    *(".k_scale", ".v_scale", ".q_scale", ".prob_scale", ".kv_scale"),
    *(".k_proj.output_scale", ".v_proj.output_scale"),
)
"""Ends of the names of scales for a quantized cache. Those of queries and of weights of attention
are not read: both are computed in the type of the model."""

_ONE: Final = ((), (1,))
"""Shapes of one number."""


@dataclass(frozen=True, slots=True)
class StoredScales:
    """What the numbers of a layer's cache are multiplied with."""

    key: float
    value: float


def read_cache_scales(tensors: StoredTensors, attention: str) -> StoredScales | None:
    """Return the scales of a layer, or None where the checkpoint has none.

    Args:
        attention: The layer's attention, such as "model.layers.0.self_attn".

    Raises:
        StartupError: A scale is not one positive number, or only one of two is there.
    """
    found = [_first(tensors, attention, letter) for letter in ("k", "v")]
    if found == [None, None]:
        both = f"{attention}.kv_scale"
        if not tensors.has(both):
            return None
        found = [both, both]
    for name, letter in zip(found, "kv", strict=True):
        if name is None:
            raise StartupError(
                f"the checkpoint lacks the tensor {attention}.{letter}_scale, of the other side of"
                " the cache it has one",
                field="model",
            )
    key, value = (_positive(tensors, name) for name in found if name is not None)
    return StoredScales(key, value)


def _first(tensors: StoredTensors, attention: str, letter: str) -> str | None:
    return next((name for name in _names(attention, letter) if tensors.has(name)), None)


def _names(attention: str, letter: str) -> Iterator[str]:
    """Yield the names of a scale: of newer checkpoints, of ModelOpt, and of older ones."""
    for place in ("", ".attn", f".{letter}_proj", ".qkv_proj"):
        yield f"{attention}{place}.{letter}_scale"
    yield f"{attention}.{letter}_proj.output_scale"


def _positive(tensors: StoredTensors, name: str) -> float:
    with part(tensors, name, *_ONE) as stored:
        scale = float(stored.to(torch.float32))
    if not 0.0 < scale < float("inf"):
        raise StartupError(f"the tensor {name} is {scale}, a scale is positive", field="model")
    return scale
