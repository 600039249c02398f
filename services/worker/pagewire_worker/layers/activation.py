"""Activations of MLPs, in torch."""

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor
from torch.nn import functional

from pagewire_worker.families.plan import Activation

ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}
