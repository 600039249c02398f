"""Loads the matrices of a decoder of the Llama family from a checkpoint.

Matrices that read the same input are merged into one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from pagewire_worker.checkpoint.model_config import ModelConfig
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.layers.linear import Linear, LinearFactory


@dataclass(frozen=True, slots=True)
class LayerLinears:
    """The matrices of one layer.

    Attributes:
        qkv: Queries, keys and values of all heads.
        output: From all heads to the hidden state.
        gate_up: Gates, then the values that they multiply.
        down: From the product to the hidden state.
    """

    qkv: Linear
    output: Linear
    gate_up: Linear
    down: Linear


def load_layer_linears(
    config: ModelConfig, weights: WeightReader, make_linear: LinearFactory, prefix: str
) -> LayerLinears:
    """Load the matrices of the layer `prefix`. Raises StartupError naming the tensor at fault."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    num_query = config.num_heads * config.head_dim
    num_key = config.num_kv_heads * config.head_dim
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"

    def merged(parts: Sequence[tuple[str, int]], num_inputs: int, has_bias: bool) -> Linear:
        shapes = [(f"{name}.weight", (num_outputs, num_inputs)) for name, num_outputs in parts]
        weight, bias = weights.take_stacked(shapes), None
        if has_bias:
            bias = weights.take_stacked([(f"{name}.bias", (size,)) for name, size in parts])
        return make_linear(weight, bias)

    sizes = (("q_proj", num_query), ("k_proj", num_key), ("v_proj", num_key))
    heads = [(f"{attention}.{name}", size) for name, size in sizes]
    gates = [(f"{mlp}.{name}", intermediate) for name in ("gate_proj", "up_proj")]
    return LayerLinears(
        qkv=merged(heads, hidden, config.has_qkv_bias),
        output=merged([(f"{attention}.o_proj", hidden)], num_query, config.has_output_bias),
        gate_up=merged(gates, hidden, config.has_mlp_bias),
        down=merged([(f"{mlp}.down_proj", hidden)], intermediate, config.has_mlp_bias),
    )


def load_output(
    config: ModelConfig, weights: WeightReader, make_linear: LinearFactory, embedding: Tensor
) -> Linear:
    """Load the matrix that gives the logits: the embedding itself if a model ties them."""
    if config.is_tied:
        weights.ignore("lm_head.weight")
        return make_linear(embedding, None)
    shape = (config.vocab_size, config.hidden_size)
    return make_linear(weights.take("lm_head.weight", shape), None)
