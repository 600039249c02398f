"""Turns the content of an adapter into tensors for the matrices of a model."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterContent
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.finite_values import are_finite
from pagewire_shared.adapters.fit import FittedModule
from pagewire_shared.adapters.tensor_header import StoredTensor
from pagewire_worker.adapters.stacked_experts import StackedExperts
from pagewire_worker.adapters.targets import AdapterTargets

_DTYPES: Final = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class AdapterPart:
    """The adapter of one tensor: y += scaling * up (down x).

    Attributes:
        down: [rank, inputs] of the model's type.
        up: [outputs, rank] of the same type, in the published order of the outputs.
    """

    down: Tensor
    up: Tensor
    scaling: float

    @property
    def rank(self) -> int:
        """Rows of `down`."""
        return len(self.down)


AdapterParts = Mapping[tuple[int, int], AdapterPart]
"""By the number of the matrix, and of the tensor within it."""

CutPart = Callable[[str, AdapterPart], AdapterPart]
"""(module, its adapter) -> the part of it that this process computes with."""


def whole_part(name: str, part: AdapterPart) -> AdapterPart:
    """Return `part`: nothing is divided."""
    return part


def read_parts(
    content: AdapterContent,
    modules: Iterable[FittedModule],
    targets: AdapterTargets,
    dtype: torch.dtype,
    cut: CutPart = whole_part,
) -> AdapterParts:
    """Return the tensors of an adapter, which fits the model, for the matrices of `targets`.

    Raises:
        AdapterError: A value is not finite; it names the tensor.
    """
    parts: dict[tuple[int, int], AdapterPart] = {}
    is_alternating = targets.shapes.has_alternating_gates
    for one in modules:
        module = one.module
        if targets.names.keys().isdisjoint(one.names):
            continue  # of a layer that another stage computes
        down, up = (_tensor(content, tensor, dtype) for tensor in (module.down, module.up))
        pairs: Iterable[tuple[Tensor, Tensor]] = [(down, up)]
        if module.num_experts is not None:
            has_gates = len(one.names) > module.num_experts
            stack = StackedExperts(module.num_experts, has_gates, is_alternating)
            pairs = stack.split(down, up)
        for name, pair in zip(one.names, pairs, strict=True):
            if name not in targets.names:
                continue  # of an expert that another rank computes
            parts[targets.names[name]] = cut(name, AdapterPart(*pair, module.scaling))
    return parts


def stored_values(content: AdapterContent, stored: StoredTensor) -> Tensor:
    """Return a tensor of an adapter as it is stored."""
    # A copy: the content itself is not aligned, and read-only.
    data = bytearray(memoryview(content.weights)[stored.begin : stored.end])
    return torch.frombuffer(data, dtype=_DTYPES[stored.dtype]).view(stored.shape)


def _tensor(content: AdapterContent, stored: StoredTensor, dtype: torch.dtype) -> Tensor:
    values = stored_values(content, stored).to(dtype)
    # By their bits: torch's isfinite takes longer than all else that a load does.
    bits = values.view(torch.uint8).numpy()
    if not are_finite(bits.data, _NAMES[dtype]):
        shown = str(dtype).removeprefix("torch.")
        raise AdapterError(
            f"{WEIGHTS_NAME}: tensor {stored.name}: not all values are finite in {shown}",
            stored.name,
        )
    return values
