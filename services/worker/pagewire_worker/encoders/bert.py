"""BERT, RoBERTa and XLM-RoBERTa: learned positions, norms behind each sum, a plain MLP."""

from collections.abc import Mapping
from typing import Any

from pagewire_shared.errors import StartupError
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

CLASSIFIER = "ForSequenceClassification"


def read_bert(data: Mapping[str, Any], architecture: str) -> EncoderSpec:
    """Return the encoder in the content of a config.json. Raises StartupError."""
    is_classifier = architecture.endswith(CLASSIFIER)
    return _read(
        data,
        architecture,
        prefix="bert." if is_classifier else "",
        offset=0,
        head=_pooler_head(data) if is_classifier else None,
    )


def read_roberta(data: Mapping[str, Any], architecture: str) -> EncoderSpec:
    """Return the same for RoBERTa, whose positions count from behind the padding token."""
    is_classifier = architecture.endswith(CLASSIFIER)
    padding = data.get("pad_token_id", 1)
    if not isinstance(padding, int) or padding < 0:
        raise StartupError(f"config.json: pad_token_id must be a token id, got {padding!r}")
    return _read(
        data,
        architecture,
        prefix="roberta." if is_classifier else "",
        offset=padding + 1,
        head=_first_token_head(data) if is_classifier else None,
    )


def _read(
    data: Mapping[str, Any], architecture: str, *, prefix: str, offset: int, head: HeadSpec | None
) -> EncoderSpec:
    kind = data.get("position_embedding_type", "absolute")
    if kind != "absolute":
        raise StartupError(f"config.json: position_embedding_type {kind!r} is not supported")
    num_positions = integer(data, "max_position_embeddings", 512)
    layers = [
        _layer(data, f"{prefix}encoder.layer.{index}")
        for index in range(integer(data, "num_hidden_layers"))
    ]
    return EncoderSpec(
        architecture=architecture,
        vocab_size=integer(data, "vocab_size"),
        hidden_size=integer(data, "hidden_size"),
        num_heads=integer(data, "num_attention_heads"),
        max_positions=num_positions - offset,
        norm_eps=number(data, "layer_norm_eps", 1e-12),
        activation=str(data.get("hidden_act", "gelu")),
        embedding=EmbeddingSpec(
            tokens=f"{prefix}embeddings.word_embeddings.weight",
            norm=EncoderNormSpec(f"{prefix}embeddings.LayerNorm"),
            positions=f"{prefix}embeddings.position_embeddings.weight",
            num_positions=num_positions,
            position_offset=offset,
            types=f"{prefix}embeddings.token_type_embeddings.weight",
            num_types=integer(data, "type_vocab_size", 2),
        ),
        layers=tuple(layers),
        final_norm=None,
        head=head,
        unused=(
            f"{prefix}embeddings.position_ids",
            f"{prefix}embeddings.token_type_ids",
            *(() if head else ("pooler.dense.weight", "pooler.dense.bias")),
        ),
        dtype=dtype_name(data),
    )


def _layer(data: Mapping[str, Any], prefix: str) -> EncoderLayerSpec:
    hidden, inner = integer(data, "hidden_size"), integer(data, "intermediate_size")
    attention = f"{prefix}.attention"
    parts = tuple(f"{attention}.self.{name}" for name in ("query", "key", "value"))
    return EncoderLayerSpec(
        query_key_value=EncoderLinearSpec(parts, hidden, hidden),
        output=EncoderLinearSpec((f"{attention}.output.dense",), hidden, hidden),
        attention_norm=EncoderNormSpec(f"{attention}.output.LayerNorm"),
        up=EncoderLinearSpec((f"{prefix}.intermediate.dense",), hidden, inner),
        down=EncoderLinearSpec((f"{prefix}.output.dense",), inner, hidden),
        mlp_norm=EncoderNormSpec(f"{prefix}.output.LayerNorm"),
    )


def _pooler_head(data: Mapping[str, Any]) -> HeadSpec:
    """Return BERT's head: the pooler, then one layer."""
    hidden = integer(data, "hidden_size")
    return HeadSpec(
        kind="cls",
        dense=EncoderLinearSpec(("bert.pooler.dense",), hidden, hidden),
        activation="tanh",
        norm=None,
        output=EncoderLinearSpec(("classifier",), hidden, num_labels_of(data)),
    )


def _first_token_head(data: Mapping[str, Any]) -> HeadSpec:
    """Return RoBERTa's head: two layers of its own."""
    hidden = integer(data, "hidden_size")
    return HeadSpec(
        kind="cls",
        dense=EncoderLinearSpec(("classifier.dense",), hidden, hidden),
        activation="tanh",
        norm=None,
        output=EncoderLinearSpec(("classifier.out_proj",), hidden, num_labels_of(data)),
    )
