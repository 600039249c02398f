"""Activations of MLPs, in torch."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor
from torch.nn import functional

from pagewire_worker.families.plan import Activation, ClampedSwiglu, MlpSpec

ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}


def gated(spec: MlpSpec, gate: Tensor, up: Tensor) -> Tensor:
    """Return the input of the last matrix of an MLP with a gate; all have one shape."""
    if spec.clamped is not None:
        return _clamped_swiglu(spec.clamped, gate, up)
    return ACTIVATIONS[spec.activation](gate) * up


def _clamped_swiglu(spec: ClampedSwiglu, gate: Tensor, up: Tensor) -> Tensor:
    gate, up = gate.clamp(max=spec.limit), up.clamp(-spec.limit, spec.limit)
    return (up + 1) * (gate * (gate * spec.slope).sigmoid())
