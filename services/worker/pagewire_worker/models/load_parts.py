"""Reads the parts of a plan from a checkpoint, for decoders that compute with torch's tensors.

linear_loader.py reads the linear layers.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.stored.cache_scales import StoredScales
from pagewire_worker.checkpoint.stored.reader import StoredReader
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import (
    AttentionSpec,
    LayerSpec,
    ModelPlan,
    NormSpec,
    RouterSpec,
)

_logger = logging.getLogger(__name__)


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
        order: Published place of each number; None for the published order.
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


def embedding_factor(plan: ModelPlan, dtype: torch.dtype) -> float:
    """Return the factor of embeddings, for weights of `dtype`."""
    if not plan.has_narrow_multiplier:
        return plan.embedding_multiplier
    return float(torch.tensor(plan.embedding_multiplier, dtype=dtype))


def load_sinks(spec: AttentionSpec, weights: WeightReader, device: torch.device) -> Tensor | None:
    """Load the sinks of attention, float32 [heads]. Raises StartupError naming the tensor."""
    if spec.sinks is None:
        return None
    with weights.borrow(spec.sinks, (spec.num_heads,)) as stored:
        return stored.to(device, torch.float32, copy=True)


@dataclass(frozen=True, slots=True)
class RouterTensors:
    """The tensors of a router, float32.

    Attributes:
        weight: [values, hidden].
        bias: [values], or None.
        choice_bias: [experts], or None.
    """

    weight: Tensor
    bias: Tensor | None
    choice_bias: Tensor | None


def load_router(spec: RouterSpec, weights: WeightReader, device: torch.device) -> RouterTensors:
    """Load a router. Raises StartupError naming the tensor at fault."""
    linear = spec.linear

    def parts(end: str, *inputs: int) -> Tensor:
        stored = []
        for name, size in linear.parts:
            with weights.borrow(f"{name}.{end}", (size, *inputs)) as tensor:
                stored.append(tensor.to(device, torch.float32, copy=True))
        return torch.cat(stored)

    bias, choice_bias = parts("bias") if linear.has_bias else None, None
    if spec.choice_bias is not None:
        with weights.borrow(spec.choice_bias, (spec.num_experts,)) as tensor:
            choice_bias = tensor.to(device, torch.float32, copy=True)
    return RouterTensors(parts("weight", linear.num_inputs), bias, choice_bias)


@dataclass(frozen=True, slots=True)
class LatentTensors:
    """The matrices of latent attention in its absorbed form, of the model's type.

    Attributes:
        query: From the plain part of a head's query to what it reads of a latent, [heads, rank,
            plain_dim].
        value: From what a head sees of latents to its values, [heads, value_dim, rank].
    """

    query: Tensor
    value: Tensor


def load_latent(spec: AttentionSpec, weights: WeightReader) -> LatentTensors:
    """Load the matrices of a latent. Raises StartupError naming the tensor at fault."""
    latent = spec.latent
    assert latent is not None
    size = latent.plain_dim + latent.value_dim
    if latent.absorbed is not None:
        names = [f"{name}.weight" for name in latent.absorbed]
        query = weights.take(names[0], (spec.num_heads * latent.rank, latent.plain_dim))
        value = weights.take(names[1], (spec.num_heads * latent.value_dim, latent.rank))
        return LatentTensors(*(one.unflatten(0, (spec.num_heads, -1)) for one in (query, value)))
    stored = weights.take(f"{latent.expand}.weight", (spec.num_heads * size, latent.rank))
    heads = stored.view(spec.num_heads, size, latent.rank)
    plain, value = heads.split((latent.plain_dim, latent.value_dim), dim=1)
    return LatentTensors(plain.transpose(1, 2).contiguous(), value.contiguous())


def load_cache_scales(plan: ModelPlan, reader: WeightReader) -> Sequence[StoredScales]:
    """Return the scales of the layers' caches; none where the checkpoint has none.

    Raises StartupError if only some layers have them.
    """
    if not isinstance(reader, StoredReader) or plan.attention.latent is not None:
        return ()
    names = [_attention_of(layer) for layer in plan.layers]
    found = {name: reader.cache_scales(name) for name in names}
    scales = [one for one in found.values() if one is not None]
    missing = next((name for name, one in found.items() if one is None), None)
    if scales and missing is not None:
        raise StartupError(
            f"the checkpoint lacks the tensor {missing}.k_scale, other layers have it",
            field="model",
        )
    _logger.info("the KV cache has %s", "scales of the checkpoint" if scales else "no scales")
    return scales


def _attention_of(layer: LayerSpec) -> str:
    """Return the name of a layer's attention, such as "model.layers.0.self_attn"."""
    name, _ = layer.attention.qkv.parts[0]
    return name.rpartition(".")[0]
