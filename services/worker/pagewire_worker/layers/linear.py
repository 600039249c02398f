"""Linear layers: y = x W^T + b, in several implementations behind one protocol.

`torch` is what torch does by itself. `packed` keeps bfloat16 weights in oneDNN's layout for x86
CPUs: with the plain layout, small batches reach half of the memory bandwidth.
"""

import platform
from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_shared.errors import StartupError

PACKED_BATCH = 16
"""Batch size the packed layout is chosen for; others work with it too."""


class Linear(Protocol):
    """A linear layer."""

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        ...


LinearFactory = Callable[[Tensor, Tensor | None], Linear]
"""(weight [out, in], bias [out] or None) -> layer."""


class TorchLinear:
    """torch.nn.functional.linear."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        return functional.linear(x, self._weight, self._bias)


class PackedLinear:
    """The matrix product of oneDNN over weights that were laid out for it once."""

    __slots__ = ("_bias", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_BATCH)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._weight, self._bias, "none", [], ""
        )
        return result


FACTORIES: Mapping[str, LinearFactory] = {"torch": TorchLinear, "packed": PackedLinear}


def pick_linear(name: str, device: torch.device, dtype: torch.dtype) -> tuple[str, LinearFactory]:
    """Return the name and factory that `name` ("auto" or one of FACTORIES) stands for here.

    Raises:
        StartupError: The implementation does not run on this device with this type.
    """
    can_pack = _can_pack(device, dtype)
    if name == "auto":
        name = "packed" if can_pack else "torch"
    if name == "packed" and not can_pack:
        raise StartupError(
            "--linear-backend: packed needs bfloat16 and an x86 CPU that computes in it",
            field="linear_backend",
        )
    return name, FACTORIES[name]


def _can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
