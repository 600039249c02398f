"""Reads the parts of a plan from a checkpoint, for decoders that compute with torch's tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import LayerSpec, LinearSpec, ModelPlan, NormSpec
from pagewire_worker.layers.linear import Linear, LinearFactory


@dataclass(frozen=True, slots=True)
class LayerLinears:
    """The matrices of one layer; matrices that read the same input are merged into one.

    Attributes:
        qkv: Queries, keys and values of all heads.
        output: From all heads to the hidden state.
        up: Gates, if there are any, then the values that they multiply.
        down: From the product to the hidden state.
    """

    qkv: Linear
    output: Linear
    up: Linear
    down: Linear


def load_layer_linears(
    spec: LayerSpec, weights: WeightReader, make_linear: LinearFactory
) -> LayerLinears:
    """Load the matrices of a layer. Raises StartupError naming the tensor at fault."""
    attention, mlp = spec.attention, spec.mlp
    order = attention.order_of(attention.qkv.num_outputs)
    return LayerLinears(
        qkv=load_linear(attention.qkv, weights, make_linear, order),
        output=load_linear(attention.output, weights, make_linear),
        up=load_linear(mlp.up, weights, make_linear),
        down=load_linear(mlp.down, weights, make_linear),
    )


def load_linear(
    spec: LinearSpec,
    weights: WeightReader,
    make_linear: LinearFactory,
    order: Sequence[int] | None = None,
) -> Linear:
    """Load one layer.

    Args:
        order: Published row of each output; None for the published order.
    """
    shapes = [(f"{name}.weight", (size, spec.num_inputs)) for name, size in spec.parts]
    weight, bias = in_order(weights.take_stacked(shapes), order), None
    if spec.has_bias:
        biases = weights.take_stacked([(f"{name}.bias", (size,)) for name, size in spec.parts])
        bias = in_order(biases, order)
    return make_linear(weight, bias)


def in_order(rows: Tensor, order: Sequence[int] | None) -> Tensor:
    """Return `rows` in another order; None for the same."""
    if order is None:
        return rows
    return rows.index_select(0, torch.tensor(order, device=rows.device))


@dataclass(frozen=True, slots=True)
class NormTensors:
    """The tensors of a norm.

    Attributes:
        weight: [size] of the model's type; float32 if its product is rounded late.
        bias: [size] of the same type, or None.
    """

    weight: Tensor
    bias: Tensor | None


def load_norm_tensors(
    spec: NormSpec, weights: WeightReader, order: Sequence[int] | None = None
) -> NormTensors:
    """Load the tensors of a norm. Raises StartupError naming the tensor at fault.

    Args:
        order: As of `load_linear`.
    """
    shape = (spec.size,)
    weight = in_order(weights.take(f"{spec.name}.weight", shape), order)
    if spec.rounds_late:
        weight = weight.float() + spec.offset
    bias = weights.take(f"{spec.name}.bias", shape) if spec.is_centered else None
    return NormTensors(weight, bias)


def load_embedding(plan: ModelPlan, weights: WeightReader) -> Tensor:
    """Load the matrix of the embeddings, and accept tensors that nothing reads."""
    for name in plan.unused:
        weights.ignore(name)
    return weights.take(f"{plan.embedding}.weight", (plan.vocab_size, plan.hidden_size))


def load_output(
    plan: ModelPlan, weights: WeightReader, make_linear: LinearFactory, embedding: Tensor
) -> Linear:
    """Load the matrix that gives the logits: the embedding itself if a model ties them."""
    if plan.logits.name is None:
        return make_linear(embedding, None)
    shape = (plan.vocab_size, plan.hidden_size)
    return make_linear(weights.take(f"{plan.logits.name}.weight", shape), None)


def embedding_factor(plan: ModelPlan, dtype: torch.dtype) -> float:
    """Return the factor of embeddings, for weights of `dtype`."""
    if not plan.has_narrow_multiplier:
        return plan.embedding_multiplier
    return float(torch.tensor(plan.embedding_multiplier, dtype=dtype))
