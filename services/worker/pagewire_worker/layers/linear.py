"""Linear layers: y = x W^T + b, in several implementations behind one protocol.

`torch` calls torch's own function. `packed` keeps bfloat16 weights in oneDNN's layout for x86 CPUs:
with the plain layout, small batches reach half of the memory bandwidth. `fixed-tile` is a CUDA
kernel whose rows do not depend on the batch.
"""

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.triton_kernels.availability import check_triton
from pagewire_worker.triton_kernels.packed_codes import PackedCodes

PACKED_BATCH = 16
"""Batch size that the packed layout is chosen for; other sizes work with it too."""


class Linear(Protocol):
    """A linear layer."""

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        ...


LinearFactory = Callable[[Tensor, Tensor | None], Linear]
"""(weight [out, in], bias [out] or None) -> layer."""

CodeFactory = Callable[[CodedMatrix, Tensor | None, torch.device, torch.dtype], Linear | None]
"""(matrix, bias [out] or None, device, type of inputs) -> layer; None for codes of another form."""

StackFactory = Callable[[Iterable[CodedMatrix | None], int, torch.device], PackedCodes | None]
"""(matrices, their number, device) -> their stack; None if one is no codes or of another form."""


@dataclass(frozen=True, slots=True)
class CodeKind:
    """An implementation of linear layers that multiplies with the codes of a checkpoint.

    Attributes:
        name: Part of the numerics fingerprint of a model with such layers.
        layer: Makes the layers.
        has_output: Whether it makes the layer that gives logits, too.
        stack: Makes the stacks of experts; None where they become values.
    """

    name: str
    layer: CodeFactory
    has_output: bool = True
    stack: StackFactory | None = None


@dataclass(frozen=True, slots=True)
class LinearKind:
    """An implementation of the linear layers of a model.

    Attributes:
        name: Part of the numerics fingerprint.
        layer: Makes the layers of transformer blocks.
        output: Makes the layer that gives logits.
        is_batch_invariant: Whether no row of any layer depends on another row.
        codes: Makes the layers of matrices that a checkpoint has as codes; None turns all of them
            into values.
    """

    name: str
    layer: LinearFactory
    output: LinearFactory
    is_batch_invariant: bool = False
    codes: CodeKind | None = None


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
    """The matrix product of oneDNN over weights that are reordered once."""

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


def _torch(device: torch.device, dtype: torch.dtype) -> LinearKind:
    return LinearKind("torch", TorchLinear, TorchLinear)


def _packed(device: torch.device, dtype: torch.dtype) -> LinearKind:
    if not _can_pack(device, dtype):
        raise StartupError(
            "--linear-backend: packed needs bfloat16 and an x86 CPU that computes in it",
            field="linear_backend",
        )
    return LinearKind("packed", PackedLinear, PackedLinear)


def _fixed_tile(device: torch.device, dtype: torch.dtype) -> LinearKind:
    check_triton("--linear-backend: fixed-tile", "linear_backend", device)
    from pagewire_worker.layers.tile_linear import TileLinear

    return LinearKind("fixed-tile", TileLinear, TileLinear, is_batch_invariant=True)


FACTORIES: Mapping[str, Callable[[torch.device, torch.dtype], LinearKind]] = {
    "torch": _torch,
    "packed": _packed,
    "fixed-tile": _fixed_tile,
}


def pick_linear(name: str, device: torch.device, dtype: torch.dtype) -> LinearKind:
    """Return the implementation for `name`: "auto" or one of FACTORIES.

    Raises:
        StartupError: The implementation does not run on this device with this type.
    """
    if name == "auto":
        name = "packed" if _can_pack(device, dtype) else "torch"
    return FACTORIES[name](device, dtype)


def _can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    return (
        device.type == "cpu"
        and dtype == torch.bfloat16
        and platform.machine() in ("x86_64", "AMD64")
        and torch.backends.mkldnn.is_available()
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
