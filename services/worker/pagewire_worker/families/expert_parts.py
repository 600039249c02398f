"""Builds mixtures of experts out of fields of config.json, with published names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from pagewire_shared.errors import StartupError
from pagewire_worker.families.fields import Data, integer, number
from pagewire_worker.families.parts import Sizes, gated_mlp
from pagewire_worker.families.plan import (
    Activation,
    ClampedSwiglu,
    LinearSpec,
    MlpSpec,
    RouterSpec,
)

CHOSEN: Final = "num_experts_per_tok"
COUNTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names of one number: libraries write the one or the other."""


def gated_experts(
    sizes: Sizes,
    name: str,
    *,
    count: int,
    size: int,
    activation: Activation,
    parts: Sequence[str] = ("gate_proj", "up_proj", "down_proj"),
    has_bias: bool = False,
    clamped: ClampedSwiglu | None = None,
) -> tuple[MlpSpec, ...]:
    """Return gated MLPs of the tensors `name`.NUMBER.

    Args:
        size: Values behind the activation of one expert.
        parts: Ends of the names: the gates, the values that they multiply, and the last matrix.
    """
    gate, up, down = parts
    return tuple(
        MlpSpec(
            up=LinearSpec(
                parts=((f"{one}.{gate}", size), (f"{one}.{up}", size)),
                num_inputs=sizes.hidden,
                has_bias=has_bias,
            ),
            down=LinearSpec(
                parts=((f"{one}.{down}", sizes.hidden),), num_inputs=size, has_bias=has_bias
            ),
            size=size,
            activation=activation,
            clamped=clamped,
        )
        for one in (f"{name}.{number}" for number in range(count))
    )


def shared_mlp(sizes: Sizes, name: str, size: int, activation: Activation) -> MlpSpec:
    """Return a gated MLP that all tokens pass."""
    return gated_mlp(replace(sizes, inner=size), name, activation=activation)


def softmax_router(
    data: Data,
    sizes: Sizes,
    name: str,
    count: int,
    *,
    is_normalised: bool,
    gate: str | None = None,
    has_bias: bool = False,
) -> RouterSpec:
    """Return a router that weighs experts by the softmax of its products.

    Args:
        gate: Name of the matrix of a shared expert's gate; None for none.
    """
    gates = () if gate is None else ((gate, 1),)
    return RouterSpec(
        linear=LinearSpec(
            parts=((name, count), *gates), num_inputs=sizes.hidden, has_bias=has_bias
        ),
        num_experts=count,
        num_chosen=num_chosen(data, count),
        is_normalised=is_normalised,
    )


def grouped_router(
    data: Data,
    sizes: Sizes,
    name: str,
    count: int,
    *,
    score: Literal["softmax", "sigmoid"] = "sigmoid",
    has_choice_bias: bool = True,
    group_best: int = 2,
) -> RouterSpec:
    """Return a router that chooses groups of experts first (DeepSeek-AI, 2024).

    Args:
        group_best: As in RouterSpec.
    """
    chosen, num_groups = num_chosen(data, count), integer(data, "n_group", 1)
    kept = integer(data, "topk_group", 1)
    size = count // num_groups
    if count % num_groups or kept > num_groups or kept * size < chosen or size < group_best:
        raise StartupError(
            f"config.json: n_group ({num_groups}) and topk_group ({kept}) do not give "
            f"{chosen} of {count} experts"
        )
    return RouterSpec(
        linear=LinearSpec(parts=((name, count),), num_inputs=sizes.hidden),
        num_experts=count,
        num_chosen=chosen,
        score=score,
        choice_bias=f"{name}.e_score_correction_bias" if has_choice_bias else None,
        is_normalised=bool(data.get("norm_topk_prob", True)),
        factor=number(data, "routed_scaling_factor", 1.0),
        num_groups=num_groups,
        num_chosen_groups=kept,
        group_best=group_best,
    )


def num_experts(data: Data, default: int | None = None) -> int:
    """Return the number of experts of a layer, by any of its names. Raises StartupError."""
    found = [name for name in COUNTS if data.get(name) is not None]
    return integer(data, found[0] if found else COUNTS[0], default)


def num_chosen(data: Data, count: int, default: int | None = None) -> int:
    """Return the experts of a token. Raises StartupError where there are fewer experts."""
    chosen = integer(data, CHOSEN, default)
    if chosen > count:
        raise StartupError(f"config.json: {CHOSEN} ({chosen}) is more than its {count} experts")
    return chosen


def sparse_layers(data: Data) -> Sequence[bool]:
    """Return for each layer whether it has experts, by the fields that Qwen has for it."""
    step, dense = integer(data, "decoder_sparse_step", 1), data.get("mlp_only_layers") or ()
    layers = range(integer(data, "num_hidden_layers"))
    return [layer not in dense and (layer + 1) % step == 0 for layer in layers]


def layers_beyond(data: Data) -> Mapping[str, Any]:
    """Return options of model_plan that leave out the layers for several tokens at once.

    Such checkpoints store them behind the layers of the model.
    """
    first = integer(data, "num_hidden_layers")
    count = int(data.get("num_nextn_predict_layers") or 0)
    return {"unused": tuple(f"model.layers.{first + index}." for index in range(max(count, 1)))}
