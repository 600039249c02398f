"""Reads the layer of a checkpoint that predicts a further token (MTP, DeepSeek-AI, 2024).

DeepSeek V3 and GLM-4.5 store it behind the layers of the model. The embedding and the matrix of
logits, which it stores once more, are those of the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.weights import WeightReader
from pagewire_worker.families.plan import ModelPlan
from pagewire_worker.families.registry import FAMILIES
from pagewire_worker.layers.linear import LinearKind
from pagewire_worker.layers.rotary import RotaryTable
from pagewire_worker.models.decoder import load_layer, load_norm
from pagewire_worker.models.draft_head import DraftHead, MergedEntry
from pagewire_worker.models.linear_loader import LinearLoader


def mtp_plan(data: Mapping[str, Any], model: ModelPlan) -> ModelPlan:
    """Return `model` with the layer that predicts a further token as its only one.

    Raises:
        StartupError: The checkpoint has no such layer.
    """
    field, num_layers = "num_nextn_predict_layers", len(model.layers)
    if not data.get(field):
        raise StartupError(f"config.json: {field} is {data.get(field, 'missing')}, not 1 or more")
    longer = {**data, "num_hidden_layers": num_layers + 1}
    layers = FAMILIES[model.architecture].read(longer).layers
    return replace(model, layers=layers[num_layers:])


def load_mtp(
    plan: ModelPlan,
    name: str,
    weights: WeightReader,
    kind: LinearKind,
    dtype: torch.dtype,
    num_positions: int,
    embedding: Callable[[], Tensor],
) -> DraftHead:
    """Return a head of the plan of `mtp_plan`. Raises StartupError naming the tensor at fault.

    Args:
        name: Begin of the names of the layer's tensors, such as "model.layers.61".
        num_positions: Longest sequence.
        embedding: Reads that of the model.
    """
    (spec,), device, hidden = plan.layers, torch.device("cpu"), plan.hidden_size
    rope = spec.attention.rope
    rotary = None if rope is None else RotaryTable(rope, num_positions, device, dtype)
    layer = load_layer(plan, spec, weights, LinearLoader(weights, kind, device, dtype), rotary)
    token_norm, state_norm, after = (
        load_norm(replace(plan.norm, name=f"{name}.{end}"), weights)
        for end in ("enorm", "hnorm", "shared_head.norm")
    )
    merge = kind.layer(weights.take(f"{name}.eh_proj.weight", (hidden, 2 * hidden)), None)
    return DraftHead(
        taps=(int(name.rpartition(".")[2]),),
        fuse=None,
        embedding=embedding(),
        enter=MergedEntry(merge, (token_norm, state_norm), layer.attention_branch.before),
        layer=layer,
        after=after,
    )
