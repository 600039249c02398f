"""Reads the parts of a plan from a checkpoint, for decoders that compute with torch's tensors.

linear_loader.py reads the linear layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import ModelPlan, NormSpec


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
