"""Checks whether an adapter fits a model: before it is loaded, and again where it is used."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pagewire_shared.adapters.adapter_config import AdapterConfig
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterSummary
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.adapters.model_shapes import ModelShapes, TargetShape, own_module
from pagewire_shared.adapters.modules import AdapterModule
from pagewire_shared.adapters.tensor_header import StoredTensor

_STACK: Final = re.compile(r"model\.layers\.(\d{1,6})\.\w+\.experts(?:\.base_layer)?")
# Before, PEFT exchanged inputs and outputs where a parameter is [experts, outputs, inputs], as it
# is in all families but gpt-oss.
_FIRST_VERSION: Final = (0, 19)


@dataclass(frozen=True, slots=True)
class FittedModule:
    """A module of an adapter, and the matrices of the model that it changes.

    Attributes:
        names: Modules of the matrices. Of a parameter that holds all experts of a layer: those of
            one expert after the other, its gates before the values that they multiply.
        is_routed: Whether they belong to experts that a router chooses.
        is_outer: Whether it is of no layer.
    """

    module: AdapterModule
    names: tuple[str, ...]
    is_routed: bool
    is_outer: bool = False


def check_fit(summary: AdapterSummary, shapes: ModelShapes) -> tuple[FittedModule, ...]:
    """Return what each module of an adapter changes in a model. It takes time for many experts.

    Raises:
        AdapterError: The model has no such matrix, or one of another shape, a matrix that the
            settings select has none, or a slot has no room; it names the tensor or module.
    """
    fitted, taken = [], set[str]()
    for module in summary.modules:
        one = _fitted(module, summary.config, shapes)
        if not taken.isdisjoint(one.names):
            raise AdapterError(f"module {module.name} has two adapters", module.name)
        taken.update(one.names)
        fitted.append(one)
    _check_copies(summary, fitted)
    _check_whole(summary.config, shapes, taken, has_routed=any(one.is_routed for one in fitted))
    _check_room(fitted, shapes)
    return tuple(fitted)


def _fitted(module: AdapterModule, config: AdapterConfig, shapes: ModelShapes) -> FittedModule:
    name = own_module(module.name)
    if module.num_experts is not None:
        return FittedModule(module, _stacked_names(module, name, config, shapes), is_routed=True)
    target = shapes.find(name)
    if target is None:
        raise _refused(module, shapes.reason(name))
    for tensor, wanted in (
        (module.down, (module.rank, target.num_inputs)),
        (module.up, (target.num_outputs, module.rank)),
    ):
        if tensor.shape != wanted:
            raise _misfit(tensor, f"the matrix of the model takes {list(wanted)}")
    return FittedModule(module, (name,), bool(target.num_experts), target.is_outer)


def _stacked_names(
    module: AdapterModule, name: str, config: AdapterConfig, shapes: ModelShapes
) -> tuple[str, ...]:
    match = _STACK.fullmatch(name)
    layer = int(match[1]) if match else -1
    stacks = shapes.stacks(layer)
    if not stacks:
        if any(f".{part}." in f".{name}." for part, _ in shapes.refusals):
            raise _refused(module, shapes.reason(name))
        raise _refused(module, "the layer has no experts that a router chooses")
    version = config.peft_version
    if version is not None and version < _FIRST_VERSION and not shapes.has_alternating_gates:
        raise AdapterError(
            f"{CONFIG_NAME}: target_parameters: PEFT {version[0]}.{version[1]} exchanged inputs and"
            " outputs; write the adapter with PEFT 0.19 or later",
            "target_parameters",
        )
    num_experts = next(iter(stacks.values()))[0].num_experts
    if module.num_experts != num_experts:
        rows = num_experts * module.rank
        text = f"{num_experts} experts of rank {module.rank} have {rows} rows"
        raise _misfit(module.down, text)
    for stack, targets in stacks.items():
        sizes = targets[0].num_inputs, sum(one.num_outputs for one in targets)
        if (module.num_inputs, module.num_outputs) == sizes and stack in config.stacks:
            by_expert = zip(*(one.names(layer) for one in targets), strict=True)
            return tuple(name for names in by_expert for name in names)
    raise _misfit(
        module.up,
        f"{module.num_inputs} inputs and {module.num_outputs} outputs are those of no parameter of "
        f"target_parameters: {_sizes(stacks.items())}",
    )


def _sizes(stacks: Iterable[tuple[str, tuple[TargetShape, ...]]]) -> str:
    return ", ".join(
        f"{stack} has {targets[0].num_inputs} and {sum(one.num_outputs for one in targets)}"
        for stack, targets in stacks
    )


def _check_copies(summary: AdapterSummary, fitted: Iterable[FittedModule]) -> None:
    """Whether a copy is equal to the model's own matrix, only what reads the model can say."""
    outer = {one.module.name for one in fitted if one.is_outer}
    for name, copy in summary.copies.items():
        if name not in outer:
            raise AdapterError(
                f"{WEIGHTS_NAME}: tensor {copy.name}: an adapter cannot replace a matrix", copy.name
            )


def _check_whole(
    config: AdapterConfig, shapes: ModelShapes, taken: set[str], *, has_routed: bool
) -> None:
    # Libraries that keep the experts of a layer in one tensor train no adapters of single ones.
    has_single = has_routed and not config.stacks
    for target in shapes.targets:
        is_stack = bool(target.stack and config.layer_stacks)
        if is_stack and target.stack not in config.layer_stacks:
            continue
        if not is_stack and target.stack and not has_single:
            continue
        for layer, name in _missing(target, taken):
            if is_stack or config.expects(name, layer):
                field = "target_parameters" if is_stack else "target_modules"
                raise AdapterError(
                    f"{WEIGHTS_NAME} lacks the tensors of {name}, which {field} select", name
                )


def _missing(target: TargetShape, taken: set[str]) -> Iterator[tuple[int, str]]:
    for layer in target.layers:
        for name in target.names(layer):
            if name not in taken:
                yield layer, name


def _check_room(fitted: Iterable[FittedModule], shapes: ModelShapes) -> None:
    num_values = sum(one.module.num_values for one in fitted if one.is_routed or one.is_outer)
    num_bytes = num_values * shapes.value_bytes
    if num_bytes > shapes.slot_bytes:
        raise AdapterError(
            f"{WEIGHTS_NAME}: its embeddings, matrix for logits and experts that a router chooses "
            f"take {num_bytes} bytes of a slot, which has {shapes.slot_bytes}: --lora-memory "
            "divided by --max-loras",
            WEIGHTS_NAME,
        )


def _refused(module: AdapterModule, reason: str) -> AdapterError:
    shown = module.name[:200]
    return AdapterError(f"module {shown}: {reason}", shown)


def _misfit(tensor: StoredTensor, text: str) -> AdapterError:
    shown = tensor.name[:200]
    return AdapterError(
        f"{WEIGHTS_NAME}: tensor {shown} has shape {list(tensor.shape)}, and {text}", shown
    )
