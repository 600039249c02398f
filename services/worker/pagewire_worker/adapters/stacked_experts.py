"""Adapters of all experts of a layer in one pair of tensors: target_parameters of PEFT.

The layout is that of `ParamWrapper` in peft/tuners/lora/layer.py since PEFT 0.19. Before, inputs
and outputs were exchanged where a parameter is [experts, outputs, inputs], as it is in all families
but gpt-oss.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from pagewire_shared.adapters.adapter_config import AdapterConfig
from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.adapters.modules import AdapterModule
from pagewire_worker.adapters.targets import AdaptedLinear, AdapterTargets

_FIRST_VERSION: Final = (0, 19)


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """Which matrices the adapter of a parameter belongs to.

    Attributes:
        num_experts: Experts of the layer.
        places: Matrix and tensor within it, one expert after the other; of gates and the values
            that they multiply both tensors.
        has_gates: Whether the parameter is gate_up_proj.
        is_alternating: Whether the rows of both alternate; else those of the gates come first.
    """

    num_experts: int
    places: list[tuple[int, int]]
    has_gates: bool
    is_alternating: bool

    def split(self, down: Tensor, up: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield `down` and `up` of each place.

        Args:
            down: [experts * rank, inputs].
            up: [outputs, rank * experts].
        """
        ups = up.view(len(up), -1, self.num_experts).unbind(dim=2)
        for own_down, own_up in zip(down.chunk(self.num_experts), ups, strict=True):
            if not self.has_gates:
                yield own_down, own_up
            elif self.is_alternating:
                yield own_down, own_up[0::2]
                yield own_down, own_up[1::2]
            else:
                yield from ((own_down, half) for half in own_up.chunk(2))


def stacked_experts(
    module: AdapterModule, config: AdapterConfig, targets: AdapterTargets
) -> StackedExperts:
    """Return which matrices an adapter of all experts of a layer belongs to.

    Raises:
        AdapterError: The layer has no such experts, or the tensors do not fit them; it names the
            module or the tensor.
    """
    experts, is_alternating = targets.experts(module.name), targets.has_alternating_gates
    version = config.peft_version
    if version is not None and version < _FIRST_VERSION and not is_alternating:
        raise AdapterError(
            f"{CONFIG_NAME}: target_parameters: PEFT {version[0]}.{version[1]} exchanged inputs and"
            " outputs; write the adapter with PEFT 0.19 or later",
            "target_parameters",
        )
    if module.num_experts != len(experts):
        raise AdapterError(
            f"{WEIGHTS_NAME}: tensor {module.down.name} has {module.down.shape[0]} rows, and "
            f"{len(experts)} experts of rank {module.rank} have {len(experts) * module.rank}",
            module.down.name,
        )
    for which, index in enumerate(experts[0]):
        spec, stack = targets.linears[index].spec, stack_of(targets.linears[index])
        if (module.num_inputs, module.num_outputs) != (spec.num_inputs, spec.num_outputs):
            continue
        if stack in config.stacks:
            numbers = range(len(spec.parts))
            places = [(pair[which], number) for pair in experts for number in numbers]
            return StackedExperts(len(experts), places, len(numbers) > 1, is_alternating)
    raise AdapterError(
        f"{WEIGHTS_NAME}: tensors of {module.name} map {module.num_inputs} inputs to "
        f"{module.num_outputs} outputs, as no parameter of target_parameters does",
        module.name,
    )


def stack_of(linear: AdaptedLinear) -> str:
    """Return the name of the parameter that holds this matrix of all experts."""
    return "down_proj" if linear.gate_size is None else "gate_up_proj"
