"""ModernBERT (Warner et al., 2024): rotary positions, norms before each part, a gated MLP, and
local attention in most layers."""

from collections.abc import Mapping
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.pooling import PoolingKind
from pagewire_worker.backend.head import num_labels_of
from pagewire_worker.encoders.spec import (
    EmbeddingSpec,
    EncoderLayerSpec,
    EncoderLinearSpec,
    EncoderNormSpec,
    EncoderSpec,
    HeadSpec,
    dtype_name,
)
from pagewire_worker.families.fields import integer, number

_KINDS: Mapping[str, PoolingKind] = {"cls": "cls", "mean": "mean"}


def read_modernbert(data: Mapping[str, Any], architecture: str) -> EncoderSpec:
    """Return the encoder in the content of a config.json. Raises StartupError."""
    is_classifier = architecture.endswith("ForSequenceClassification")
    prefix = "model." if is_classifier else ""
    has_norm_bias = bool(data.get("norm_bias", False))
    num_layers = integer(data, "num_hidden_layers")
    return EncoderSpec(
        architecture=architecture,
        vocab_size=integer(data, "vocab_size"),
        hidden_size=integer(data, "hidden_size"),
        num_heads=integer(data, "num_attention_heads"),
        max_positions=integer(data, "max_position_embeddings", 8192),
        norm_eps=number(data, "norm_eps", 1e-5),
        activation=str(data.get("hidden_activation", "gelu")),
        embedding=EmbeddingSpec(
            tokens=f"{prefix}embeddings.tok_embeddings.weight",
            norm=EncoderNormSpec(f"{prefix}embeddings.norm", has_norm_bias),
        ),
        layers=tuple(_layer(data, prefix, index, has_norm_bias) for index in range(num_layers)),
        final_norm=EncoderNormSpec(f"{prefix}final_norm", has_norm_bias),
        head=_head(data, has_norm_bias) if is_classifier else None,
        unused=(),
        dtype=dtype_name(data),
    )


def _layer(
    data: Mapping[str, Any], prefix: str, index: int, has_norm_bias: bool
) -> EncoderLayerSpec:
    hidden, inner = integer(data, "hidden_size"), integer(data, "intermediate_size")
    has_bias, has_mlp_bias = bool(data.get("attention_bias")), bool(data.get("mlp_bias"))
    name, is_local = f"{prefix}layers.{index}", _is_local(data, index)
    return EncoderLayerSpec(
        query_key_value=EncoderLinearSpec((f"{name}.attn.Wqkv",), hidden, 3 * hidden, has_bias),
        output=EncoderLinearSpec((f"{name}.attn.Wo",), hidden, hidden, has_bias),
        # The embeddings have a norm already.
        attention_norm=EncoderNormSpec(f"{name}.attn_norm", has_norm_bias) if index else None,
        up=EncoderLinearSpec((f"{name}.mlp.Wi",), hidden, 2 * inner, has_mlp_bias),
        down=EncoderLinearSpec((f"{name}.mlp.Wo",), inner, hidden, has_mlp_bias),
        mlp_norm=EncoderNormSpec(f"{name}.mlp_norm", has_norm_bias),
        is_pre_norm=True,
        is_gated=True,
        window=integer(data, "local_attention", 128) // 2 if is_local else None,
        rope_theta=_rope_theta(data, is_local),
    )


def _is_local(data: Mapping[str, Any], index: int) -> bool:
    types = data.get("layer_types")
    if isinstance(types, list) and index < len(types):
        return bool(types[index] == "sliding_attention")
    return index % integer(data, "global_attn_every_n_layers", 3) != 0


def _rope_theta(data: Mapping[str, Any], is_local: bool) -> float:
    """Return the base of rotary positions, in either spelling."""
    nested = data.get("rope_parameters")
    if isinstance(nested, dict):
        settings = nested.get("sliding_attention" if is_local else "full_attention") or {}
        kind = settings.get("rope_type", "default")
        if kind != "default":
            raise StartupError(f"config.json: rope type {kind!r} is not supported for encoders")
        data = {"local_rope_theta": settings.get("rope_theta"), **settings}
        data["global_rope_theta"] = settings.get("rope_theta")
    if is_local and data.get("local_rope_theta") is not None:
        return number(data, "local_rope_theta", 1e4)
    return number(data, "global_rope_theta", 16e4)


def _head(data: Mapping[str, Any], has_norm_bias: bool) -> HeadSpec:
    hidden = integer(data, "hidden_size")
    kind = data.get("classifier_pooling", "cls")
    if kind not in _KINDS:
        raise StartupError(f"config.json: classifier_pooling {kind!r} is not supported")
    return HeadSpec(
        kind=_KINDS[kind],
        dense=EncoderLinearSpec(("head.dense",), hidden, hidden, bool(data.get("classifier_bias"))),
        activation=str(data.get("classifier_activation", "gelu")),
        norm=EncoderNormSpec("head.norm", has_norm_bias),
        output=EncoderLinearSpec(("classifier",), hidden, num_labels_of(data)),
    )
