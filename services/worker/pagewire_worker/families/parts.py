"""Builds the parts that most families share out of fields of config.json, with published names."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire_shared.errors import StartupError
from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.families.fields import Data, integer, number
from pagewire_worker.families.plan import (
    Activation,
    AttentionSpec,
    BranchNorms,
    ExpertsSpec,
    LayerSpec,
    LinearSpec,
    LogitsSpec,
    MlpSpec,
    ModelPlan,
    NormSpec,
)
from pagewire_worker.families.rope import DEFAULT_POSITIONS
from pagewire_worker.families.specs.rope_spec import RopeSpec

DEFAULT_EPSILON = 1e-6
OUTPUT = "lm_head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the checkpoints of one architecture are read.

    Attributes:
        architecture: Name in config.json of the form with logits.
        read: Makes the plan of a config.json; raises StartupError naming the first field at fault.
        gguf: Names of the architecture in GGUF files whose tensors are converted.
        has_experts: Whether its layers may be mixtures of experts.
    """

    architecture: str
    read: Callable[[Data], ModelPlan]
    gguf: tuple[str, ...] = ()
    has_experts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes that all layers share."""

    hidden: int
    inner: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


def read_sizes(data: Data, head_dim: int | None = None) -> Sizes:
    """Return the sizes in a config.json. Raises StartupError.

    Args:
        head_dim: Where config.json does not say it; by default the hidden size is shared out.
    """
    hidden = integer(data, "hidden_size")
    num_heads = integer(data, "num_attention_heads")
    num_kv_heads = integer(data, "num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise StartupError(
            f"config.json: num_attention_heads ({num_heads}) is no multiple of "
            f"num_key_value_heads ({num_kv_heads})"
        )
    return Sizes(
        hidden=hidden,
        inner=integer(data, "intermediate_size"),
        num_layers=integer(data, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=integer(data, "head_dim", head_dim or hidden // num_heads),
    )


def rms_norms(data: Data, size: int, **options: Any) -> Callable[[str], NormSpec]:
    """Return a function from the name of a norm by root mean square to its spec."""
    epsilon = number(data, "rms_norm_eps", DEFAULT_EPSILON)
    return lambda name: NormSpec(name=name, size=size, epsilon=epsilon, **options)


def attention(
    sizes: Sizes,
    name: str,
    *,
    rope: RopeSpec | None,
    is_merged: bool = False,
    has_qkv_bias: bool = False,
    has_output_bias: bool = False,
    kind: AttentionKind | None = None,
    head_norm: Callable[[str], NormSpec] | None = None,
    sinks: str | None = None,
) -> AttentionSpec:
    """Return attention whose tensors begin with `name`.

    Args:
        is_merged: Queries, keys and values are stored as one tensor.
        head_norm: Makes the norms of the heads of queries and keys; None for none.
        sinks: End of the name of the heads' sinks; None for none.
    """
    query, key = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
    separate = (("q_proj", query), ("k_proj", key), ("v_proj", key))
    parts = (("qkv_proj", query + 2 * key),) if is_merged else separate
    return AttentionSpec(
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        qkv=_linear(name, parts, sizes.hidden, has_qkv_bias),
        output=_linear(name, (("o_proj", sizes.hidden),), query, has_output_bias),
        rope=rope,
        kind=AttentionKind() if kind is None else kind,
        query_norm=head_norm(f"{name}.q_norm") if head_norm else None,
        key_norm=head_norm(f"{name}.k_norm") if head_norm else None,
        sinks=f"{name}.{sinks}" if sinks else None,
    )


def gated_mlp(
    sizes: Sizes,
    name: str,
    *,
    activation: Activation,
    is_merged: bool = False,
    has_bias: bool = False,
) -> MlpSpec:
    """Return a gated MLP whose tensors begin with `name`.

    Args:
        is_merged: Gates and the values that they multiply are stored as one tensor.
    """
    inner = sizes.inner
    separate = (("gate_proj", inner), ("up_proj", inner))
    parts = (("gate_up_proj", 2 * inner),) if is_merged else separate
    return MlpSpec(
        up=_linear(name, parts, sizes.hidden, has_bias),
        down=_linear(name, (("down_proj", sizes.hidden),), inner, has_bias),
        size=inner,
        activation=activation,
    )


def plain_mlp(
    sizes: Sizes, name: str, names: tuple[str, str], activation: Activation, has_bias: bool
) -> MlpSpec:
    """Return an MLP without a gate, of the two tensors `names`."""
    return MlpSpec(
        up=_linear(name, ((names[0], sizes.inner),), sizes.hidden, has_bias),
        down=_linear(name, ((names[1], sizes.hidden),), sizes.inner, has_bias),
        size=sizes.inner,
        activation=activation,
        is_gated=False,
    )


def pre_norm_layers(
    sizes: Sizes,
    norm: Callable[[str], NormSpec],
    make_attention: Callable[[str, int], AttentionSpec],
    make_mlp: Callable[[str, int], MlpSpec | ExpertsSpec],
) -> list[LayerSpec]:
    """Return layers with norms before attention and MLP.

    Args:
        norm: Makes a norm of the hidden state from its name.
        make_attention: Makes the attention of a layer from its name and the layer's number.
        make_mlp: Makes an MLP or experts in the same way.
    """
    return [
        LayerSpec(
            make_attention(f"{name}.self_attn", index),
            BranchNorms(norm(f"{name}.input_layernorm")),
            make_mlp(f"{name}.mlp", index),
            BranchNorms(norm(f"{name}.post_attention_layernorm")),
        )
        for index, name in enumerate(layer_names(sizes))
    ]


def layer_names(sizes: Sizes) -> list[str]:
    """Return what the names of the tensors of each layer begin with."""
    return [f"model.layers.{index}" for index in range(sizes.num_layers)]


def model_plan(
    data: Data,
    layers: Sequence[LayerSpec],
    norm: NormSpec,
    *,
    is_tied: bool = False,
    logits: Callable[[str | None], LogitsSpec] = LogitsSpec,
    **options: Any,
) -> ModelPlan:
    """Return the plan of a model whose architecture is not named yet.

    Args:
        is_tied: Whether the matrix of the logits is the embedding, where config.json does not say.
        logits: Makes the last layer from the name of its matrix.
    """
    shares = bool(data.get("tie_word_embeddings", is_tied))
    unused = (*options.pop("unused", ()), *((f"{OUTPUT}.weight",) if shares else ()))
    return ModelPlan(
        architecture="",
        vocab_size=integer(data, "vocab_size"),
        hidden_size=integer(data, "hidden_size"),
        max_positions=integer(data, "max_position_embeddings", DEFAULT_POSITIONS),
        dtype=data.get("dtype") or data.get("torch_dtype"),
        layers=tuple(layers),
        norm=norm,
        logits=logits(None if shares else OUTPUT),
        unused=unused,
        **options,
    )


def _linear(
    name: str, parts: Sequence[tuple[str, int]], num_inputs: int, has_bias: bool
) -> LinearSpec:
    named = tuple((f"{name}.{part}", size) for part, size in parts)
    return LinearSpec(parts=named, num_inputs=num_inputs, has_bias=has_bias)
