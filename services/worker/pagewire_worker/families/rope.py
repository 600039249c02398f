"""Reads the settings of rotary embeddings.

Accepts both spellings: `rope_theta` + `rope_scaling`, and `rope_parameters` of newer checkpoints.
"""

from collections.abc import Mapping
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_worker.families.fields import Data, UnsupportedModelError, integer
from pagewire_worker.families.specs.rope_spec import RopeSpec

DEFAULT_THETA = 10000.0
DEFAULT_POSITIONS = 2048

_ORIGINAL = "original_max_position_embeddings"

NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL),
    "yarn": ("factor", _ORIGINAL),
    "longrope": (_ORIGINAL, "short_factor"),
}
"""Types of scaling, and the settings without which they mean nothing."""

OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    "longrope": ("attention_factor", "factor", "long_factor"),
}

_SAME: Mapping[str, str] = {"mrope": "default"}
"""Types that rotate text as others do. The three positions of "mrope" (Wang et al., 2024) are
equal for text, so it does not matter which dimensions turn by which of them."""

_LISTS = ("short_factor", "long_factor")
_FLAGS = {"yarn": {"truncate": True}}
_TYPES = ", ".join(NEEDED)


def read_rope(
    data: Data,
    head_dim: int,
    *,
    settings: Mapping[str, Any] | None = None,
    theta: float = DEFAULT_THETA,
    partial: float | None = None,
    is_interleaved: bool = False,
    rounds_late: bool = False,
) -> RopeSpec:
    """Return the rotary embedding in a config.json.

    Args:
        settings: Those of one kind of layer; by default those of the model.
        theta: Where config.json names no base.
        partial: Default part of a head that is rotated; None if a part is not allowed.

    Raises:
        UnsupportedModelError: The type of scaling is not computed, or the rotated part is odd.
        StartupError: A setting is missing or invalid.
    """
    found = rope_settings(data) if settings is None else settings
    named = str(found.get("rope_type") or found.get("type") or "default")
    rope_type = _SAME.get(named, named)
    if rope_type not in NEEDED:
        raise UnsupportedModelError(
            f"config.json: rope type {rope_type!r} is not supported, only {_TYPES}"
        )
    source = {**found, _ORIGINAL: _original(data, found, rope_type)}
    read = {name: _setting(source, rope_type, name) for name in NEEDED[rope_type]}
    optional = [name for name in OPTIONAL.get(rope_type, ()) if source.get(name) is not None]
    read |= {name: _setting(source, rope_type, name) for name in optional}
    read |= {n: bool(found.get(n, v)) for n, v in _FLAGS.get(rope_type, {}).items()}
    rotary_dim = _rotary_dim(data, found, head_dim, partial)
    _check_lengths(read, rotary_dim // 2)
    return RopeSpec(
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        max_positions=integer(data, "max_position_embeddings", DEFAULT_POSITIONS),
        theta=float(found.get("rope_theta") or data.get("rope_theta") or theta),
        rope_type=rope_type,
        settings=read,
        is_interleaved=is_interleaved,
        rounds_late=rounds_late,
    )


def rope_settings(data: Data) -> Mapping[str, Any]:
    """Return the settings of a model, in either spelling. Raises StartupError."""
    found = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(found, dict):
        raise StartupError(f"config.json: rope_scaling must be an object, got {found!r}")
    return found


def _original(data: Data, settings: Mapping[str, Any], rope_type: str) -> Any:
    """Return the context before scaling: some checkpoints name it outside of the settings."""
    found = data.get(_ORIGINAL) or settings.get(_ORIGINAL)
    return data.get("max_position_embeddings") if found is None and rope_type == "yarn" else found


def _rotary_dim(
    data: Data, settings: Mapping[str, Any], head_dim: int, partial: float | None
) -> int:
    default = 1.0 if partial is None else partial
    factor = settings.get("partial_rotary_factor") or data.get("partial_rotary_factor") or default
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= 1:
        raise StartupError(
            f"config.json: partial_rotary_factor must be above 0 and at most 1, got {factor!r}"
        )
    if partial is None and factor != 1.0:
        raise UnsupportedModelError("config.json: partial_rotary_factor is not supported here")
    rotary_dim = int(head_dim * factor)
    if head_dim % 2 or rotary_dim % 2:
        raise UnsupportedModelError(
            f"config.json: head_dim must be even, and its rotated part, got {head_dim} and "
            f"{rotary_dim}"
        )
    return rotary_dim


def _check_lengths(settings: Mapping[str, Any], num_pairs: int) -> None:
    for name in _LISTS:
        if len(settings.get(name, [None] * num_pairs)) != num_pairs:
            raise StartupError(
                f"config.json: {name} must have {num_pairs} entries, one per rotated pair"
            )


def _setting(settings: Mapping[str, Any], rope_type: str, name: str) -> float | list[float]:
    value: Any = settings.get(name)
    values: list[Any] = value if name in _LISTS and isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, int | float) or one <= 0:
            raise StartupError(
                f"config.json: rope type {rope_type!r} needs a positive {name}, got {value!r}"
            )
    return [float(one) for one in values] if name in _LISTS else float(values[0])
