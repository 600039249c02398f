"""Reads the shape of a model from config.json. Refuses models that the decoder cannot compute.

Accepts both spellings of rotary settings: `rope_theta` + `rope_scaling`, and `rope_parameters` in
newer checkpoints.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.window import UnsupportedModelError, WindowRule, refuse_window
from pagewire_worker.kv.kv_cache import CacheShape

ROPE_TYPES = ("default", "linear", "llama3")
DEFAULT_ROPE_THETA = 10000.0
DEFAULT_RMS_NORM_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: base, kind of scaling and the numbers that the kind needs."""

    theta: float = DEFAULT_ROPE_THETA
    rope_type: str = "default"
    factors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape of a decoder-only transformer with grouped-query attention and a gated MLP.

    Attributes:
        has_qkv_bias, has_output_bias, has_mlp_bias: Whether these linear layers have a bias.
        has_qk_norm: RMS norm over the head dimension of queries and keys (Qwen3).
        sliding_window: Positions that a token attends to, itself included; None for all.
        dtype: Name of the type the weights were published in, or None.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeConfig
    max_position_embeddings: int
    is_tied: bool
    has_qkv_bias: bool
    has_output_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool
    sliding_window: int | None
    dtype: str | None

    @property
    def num_query_groups(self) -> int:
        """Query heads per KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def cache_shape(self) -> CacheShape:
        """Shape of the cache per position."""
        return CacheShape(self.num_layers, self.num_kv_heads, self.head_dim, self.sliding_window)


@dataclass(frozen=True, slots=True)
class Traits:
    """Differences of an architecture from plain Llama; None means "as config.json says"."""

    has_qkv_bias: bool | None = None
    has_output_bias: bool | None = None
    has_qk_norm: bool = False
    default_head_dim: int | None = None
    window: WindowRule = refuse_window


def parse_model_config(data: Mapping[str, Any], architecture: str, traits: Traits) -> ModelConfig:
    """Return the shape in `data`.

    Raises:
        UnsupportedModelError: A field asks for something that the decoder does not compute.
        StartupError: A field is missing or invalid. Both errors name the first such field.
    """
    _refuse_unsupported(data)
    hidden = _integer(data, "hidden_size")
    num_heads = _integer(data, "num_attention_heads")
    num_kv_heads = _integer(data, "num_key_value_heads", num_heads)
    head_dim = _integer(data, "head_dim", traits.default_head_dim or hidden // num_heads)
    if num_heads % num_kv_heads:
        raise StartupError(
            f"config.json: num_attention_heads ({num_heads}) is no multiple of "
            f"num_key_value_heads ({num_kv_heads})"
        )
    if head_dim % 2:
        raise UnsupportedModelError(f"config.json: head_dim must be even, got {head_dim}")
    attention_bias = bool(data.get("attention_bias", False))
    return ModelConfig(
        architecture=architecture,
        vocab_size=_integer(data, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_integer(data, "intermediate_size"),
        num_layers=_integer(data, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=float(data.get("rms_norm_eps", DEFAULT_RMS_NORM_EPS)),
        rope=_parse_rope(data),
        max_position_embeddings=_integer(data, "max_position_embeddings", 2048),
        is_tied=bool(data.get("tie_word_embeddings", False)),
        has_qkv_bias=_either(traits.has_qkv_bias, attention_bias),
        has_output_bias=_either(traits.has_output_bias, attention_bias),
        has_mlp_bias=bool(data.get("mlp_bias", False)),
        has_qk_norm=traits.has_qk_norm,
        sliding_window=traits.window(data),
        dtype=data.get("dtype") or data.get("torch_dtype"),
    )


def _either(fixed: bool | None, otherwise: bool) -> bool:
    return otherwise if fixed is None else fixed


def _refuse_unsupported(data: Mapping[str, Any]) -> None:
    activation = data.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModelError(
            f"config.json: hidden_act {activation!r} is not supported, only 'silu'"
        )


def _integer(data: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = data.get(name)
    if value is None:
        value = default
    if value is None:
        raise StartupError(f"config.json: {name} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise StartupError(f"config.json: {name} must be a positive integer, got {value!r}")
    return value


def _parse_rope(data: Mapping[str, Any]) -> RopeConfig:
    settings = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(settings, dict):
        raise StartupError(f"config.json: rope_scaling must be an object, got {settings!r}")
    rope_type = settings.get("rope_type") or settings.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"config.json: rope type {rope_type!r} is not supported, only {', '.join(ROPE_TYPES)}"
        )
    for source in (data, settings):
        if source.get("partial_rotary_factor", 1.0) != 1.0:
            raise UnsupportedModelError("config.json: partial_rotary_factor is not supported")
    theta = settings.get("rope_theta") or data.get("rope_theta") or DEFAULT_ROPE_THETA
    factors = {
        name: _rope_number(settings, rope_type, name) for name in _ROPE_FACTORS[str(rope_type)]
    }
    return RopeConfig(theta=float(theta), rope_type=str(rope_type), factors=factors)


_ROPE_FACTORS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
}


def _rope_number(settings: Mapping[str, Any], rope_type: str, name: str) -> float:
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise StartupError(
            f"config.json: rope type {rope_type!r} needs a positive {name}, got {value!r}"
        )
    return float(value)
