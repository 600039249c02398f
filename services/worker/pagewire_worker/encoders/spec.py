"""Description of an encoder as data: names and shapes of its tensors, and what its layers compute.

One module per family of models makes it from config.json; the network is in encoders/network.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pagewire_shared.sampling.pooling import PoolingKind


@dataclass(frozen=True, slots=True)
class EncoderLinearSpec:
    """A linear layer; several names are stacked, the first one first.

    `num_outputs` is the size of each.
    """

    names: tuple[str, ...]
    num_inputs: int
    num_outputs: int
    has_bias: bool = True


@dataclass(frozen=True, slots=True)
class EncoderNormSpec:
    """A layer norm (Ba et al., 2016)."""

    name: str
    has_bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSpec:
    """What the first layer reads: embeddings of tokens, and of positions and types if any.

    Attributes:
        tokens: Name of the table of tokens.
        positions: Name of the table of learned positions; None for rotary ones.
        position_offset: Row of the first position.
        types: Name of the table of token types; None for none.
    """

    tokens: str
    norm: EncoderNormSpec
    positions: str | None = None
    num_positions: int = 0
    position_offset: int = 0
    types: str | None = None
    num_types: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderLayerSpec:
    """One layer: attention and MLP, each with a norm before it or behind its sum.

    Attributes:
        attention_norm: None for no norm.
        is_pre_norm: Whether norms come before attention and MLP.
        is_gated: Whether `up` makes the values and then the gates of the MLP.
        window: Positions on either side that a token attends to; None for all.
        rope_theta: Base of rotary positions; None for none.
    """

    query_key_value: EncoderLinearSpec
    output: EncoderLinearSpec
    attention_norm: EncoderNormSpec | None
    up: EncoderLinearSpec
    down: EncoderLinearSpec
    mlp_norm: EncoderNormSpec
    is_pre_norm: bool = False
    is_gated: bool = False
    window: int | None = None
    rope_theta: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """A classification head: a layer with an activation, perhaps a norm, and the last layer.

    Attributes:
        kind: The vector that the head takes.
    """

    kind: PoolingKind
    dense: EncoderLinearSpec
    activation: str
    norm: EncoderNormSpec | None
    output: EncoderLinearSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """An encoder.

    Attributes:
        max_positions: Longest prompt.
        final_norm: Norm behind the last layer; None for none.
        head: None for a model that makes vectors only.
        unused: Names of tensors that checkpoints may hold and that nothing reads.
        dtype: Name of the type the weights were published in, or None.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_heads: int
    max_positions: int
    norm_eps: float
    activation: str
    embedding: EmbeddingSpec
    layers: tuple[EncoderLayerSpec, ...]
    final_norm: EncoderNormSpec | None
    head: HeadSpec | None
    unused: tuple[str, ...]
    dtype: str | None


def dtype_name(data: Mapping[str, Any]) -> str | None:
    """Return the type that config.json names, or None."""
    name = data.get("dtype") or data.get("torch_dtype")
    return str(name) if name is not None else None
