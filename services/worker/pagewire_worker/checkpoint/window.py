"""Reads from config.json whether attention is limited to a window of the last positions.

Each architecture has its own rule; the meanings are those of transformers. All layers of a model
share one block table, so the native decoder refuses models with layers of both kinds.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pagewire_shared.errors import StartupError

MISTRAL_WINDOW = 4096
"""Window of a Mistral whose config.json lacks the field; null there means no window."""

QWEN_FULL_LAYERS = 28
"""Number of first layers without a window if `max_window_layers` is missing."""

FULL, SLIDING = "full_attention", "sliding_attention"

WindowRule = Callable[[Mapping[str, Any]], int | None]
"""config.json -> positions that a token attends to, itself included, or None for all.

Raises StartupError naming the field."""


def refuse_window(data: Mapping[str, Any]) -> int | None:
    """Return None; refuse a window, for architectures without windows."""
    if data.get("use_sliding_window") or set(data.get("layer_types") or ()) - {FULL}:
        raise StartupError("config.json: sliding-window attention is not supported here")
    return None


def mistral_window(data: Mapping[str, Any]) -> int | None:
    """Return `sliding_window`, the window of every layer, if it is not null."""
    window = _positive(data.get("sliding_window", MISTRAL_WINDOW))
    kind = FULL if window is None else SLIDING
    if set(data.get("layer_types") or ()) - {kind}:
        raise StartupError(
            f"config.json: layer_types must all be {kind!r} where sliding_window is {window}"
        )
    return window


def qwen_window(data: Mapping[str, Any]) -> int | None:
    """Return the window of layers from `max_window_layers` on, if `use_sliding_window` is set."""
    if not data.get("use_sliding_window"):
        return refuse_window(data)
    window = _positive(data.get("sliding_window", MISTRAL_WINDOW))
    if window is None:
        raise StartupError("config.json: use_sliding_window needs a sliding_window")
    num_full = data.get("max_window_layers", QWEN_FULL_LAYERS)
    num_layers = data.get("num_hidden_layers", 0)
    kinds = set(data.get("layer_types") or ()) or {
        SLIDING if layer >= num_full else FULL for layer in range(num_layers)
    }
    if kinds == {SLIDING}:
        return window
    if kinds == {FULL}:
        return None
    raise UnsupportedModelError(
        "config.json: layers with and without sliding-window attention in one model are not "
        "supported"
    )


def _positive(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StartupError(
            f"config.json: sliding_window must be a positive integer or null, got {value!r}"
        )
    return value


class UnsupportedModelError(StartupError):
    """The checkpoint may be valid, but the native decoder does not support it."""
