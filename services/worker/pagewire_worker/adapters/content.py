"""Turns the content of an adapter into tensors for the matrices of a model, and checks them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from pagewire_shared.adapters.adapter_config import AdapterConfig
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterContent, AdapterSummary
from pagewire_shared.adapters.content_id import WEIGHTS_NAME
from pagewire_shared.adapters.finite_values import are_finite
from pagewire_shared.adapters.modules import AdapterModule
from pagewire_shared.adapters.tensor_header import StoredTensor
from pagewire_worker.adapters.stacked_experts import stack_of, stacked_experts
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.backend.adapters import AdapterLimits

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


Split = Callable[[Tensor, Tensor], Iterable[tuple[Tensor, Tensor]]]
"""(down, up) of a module -> those of each of its matrices."""

AdapterParts = Mapping[tuple[int, int], AdapterPart]
"""By the number of the matrix, and of the tensor within it."""


def read_parts(
    content: AdapterContent, summary: AdapterSummary, targets: AdapterTargets, dtype: torch.dtype
) -> AdapterParts:
    """Return the tensors of an adapter for the matrices of a model.

    Raises:
        AdapterError: The model has no such matrix, or one of another shape, a matrix that the
            settings select has none, or a value is not finite; it names the tensor or module.
    """
    parts: dict[tuple[int, int], AdapterPart] = {}
    for module in summary.modules:
        places, split = _matrices(module, summary.config, targets)
        if not parts.keys().isdisjoint(places):
            raise AdapterError(f"module {module.name} has two adapters", module.name)
        down, up = (_tensor(content, one, dtype) for one in (module.down, module.up))
        for place, pair in zip(places, split(down, up), strict=True):
            parts[place] = AdapterPart(*pair, module.scaling)
    _check_whole(summary.config, targets, parts)
    return parts


def _matrices(
    module: AdapterModule, config: AdapterConfig, targets: AdapterTargets
) -> tuple[Sequence[tuple[int, int]], Split]:
    """Return the places of a module, and what splits its tensors into theirs."""
    if module.num_experts is not None:
        stack = stacked_experts(module, config, targets)
        return stack.places, stack.split
    place = targets.place(module.name)
    _check_shape(module, targets, place)
    return [place], lambda down, up: [(down, up)]


def check_routed_bytes(
    summary: AdapterSummary, targets: AdapterTargets, limits: AdapterLimits, dtype: torch.dtype
) -> None:
    """Raise AdapterError if a slot has no room for the routed experts of an adapter."""
    num_values = sum(
        module.num_values
        for module in summary.modules
        if module.num_experts is not None
        or targets.linears[targets.place(module.name)[0]].is_routed
    )
    num_bytes = num_values * dtype.itemsize
    if num_bytes > limits.routed_bytes:
        raise AdapterError(
            f"{WEIGHTS_NAME}: its experts that a router chooses take {num_bytes} bytes of a slot, "
            f"which has {limits.routed_bytes}: --lora-memory divided by --max-loras",
            WEIGHTS_NAME,
        )


def _check_shape(module: AdapterModule, targets: AdapterTargets, place: tuple[int, int]) -> None:
    spec = targets.linears[place[0]].spec
    _, num_outputs = spec.parts[place[1]]
    for tensor, found, wanted in (
        (module.down, module.num_inputs, spec.num_inputs),
        (module.up, module.num_outputs, num_outputs),
    ):
        if found != wanted:
            raise AdapterError(
                f"{WEIGHTS_NAME}: tensor {tensor.name} has shape {list(tensor.shape)}, and the "
                f"matrix of the model has {wanted} in the place of {found}",
                tensor.name,
            )


def _check_whole(config: AdapterConfig, targets: AdapterTargets, parts: AdapterParts) -> None:
    # Libraries that keep the experts of a layer in one tensor train no adapters of single ones.
    has_routed = any(targets.linears[index].is_routed for index, _ in parts)
    has_single = has_routed and not config.stacks
    for name, place in targets.names.items():
        linear, field = targets.linears[place[0]], "target_modules"
        if place in parts:
            continue
        if linear.is_routed and config.layer_stacks:
            field, end = "target_parameters", stack_of(linear)
            is_expected = end in config.layer_stacks
        else:
            is_single = has_single or not linear.is_routed
            is_expected = is_single and config.expects(name, linear.layer)
        if is_expected:
            raise AdapterError(
                f"{WEIGHTS_NAME} lacks the tensors of {name}, which {field} select", name
            )


def _tensor(content: AdapterContent, stored: StoredTensor, dtype: torch.dtype) -> Tensor:
    # A copy: the content itself is not aligned, and read-only.
    data = bytearray(memoryview(content.weights)[stored.begin : stored.end])
    values = torch.frombuffer(data, dtype=_DTYPES[stored.dtype]).view(stored.shape).to(dtype)
    # By their bits: torch's isfinite takes longer than all else that a load does.
    bits = values.view(torch.uint8).numpy()
    if not are_finite(bits.data, _NAMES[dtype]):
        shown = str(dtype).removeprefix("torch.")
        raise AdapterError(
            f"{WEIGHTS_NAME}: tensor {stored.name}: not all values are finite in {shown}",
            stored.name,
        )
    return values
