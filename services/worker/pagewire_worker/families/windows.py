"""Reads from config.json which layers attend to a window of the last positions only.

The meanings are those of transformers; which rule holds is the family's.
"""

from collections.abc import Sequence

from pagewire_shared.errors import StartupError
from pagewire_worker.families.fields import Data, integer

DEFAULT_WINDOW = 4096
"""Window of a checkpoint whose config.json lacks the field, for families that have windows."""

FULL, SLIDING = "full_attention", "sliding_attention"

Windows = tuple[int | None, ...]
"""Of each layer: positions that a token attends to, itself included, or None for all."""


def no_windows(data: Data) -> Windows:
    """Return None for all layers; refuse windows, for families without them."""
    if data.get("use_sliding_window") or set(data.get("layer_types") or ()) - {FULL}:
        raise StartupError("config.json: sliding-window attention is not supported here")
    return (None,) * integer(data, "num_hidden_layers")


def one_window(data: Data, default: int | None = DEFAULT_WINDOW) -> Windows:
    """Return `sliding_window` for every layer."""
    window = window_of(data, default)
    kind = FULL if window is None else SLIDING
    if set(data.get("layer_types") or ()) - {kind}:
        raise StartupError(
            f"config.json: layer_types must all be {kind!r} where sliding_window is {window}"
        )
    return (window,) * integer(data, "num_hidden_layers")


def windows_by_type(data: Data, window: int | None, default: Sequence[str]) -> Windows:
    """Return `window` for the layers that slide by `layer_types`.

    Args:
        default: The types, one per layer, where config.json has none.
    """
    types = data.get("layer_types") or default
    num_layers = integer(data, "num_hidden_layers")
    if not isinstance(types, list | tuple) or len(types) != num_layers:
        raise StartupError(
            f"config.json: layer_types must have {num_layers} entries, one per layer"
        )
    if set(types) - {FULL, SLIDING}:
        raise StartupError(f"config.json: layer_types must be {FULL!r} or {SLIDING!r}")
    if SLIDING in types and window is None:
        raise StartupError("config.json: layers with a window need a sliding_window")
    return tuple(window if kind == SLIDING else None for kind in types)


def window_of(data: Data, default: int | None = DEFAULT_WINDOW) -> int | None:
    """Return `sliding_window`, which may be null. Raises StartupError."""
    value = data.get("sliding_window", default)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StartupError(
            f"config.json: sliding_window must be a positive integer or null, got {value!r}"
        )
    return value
