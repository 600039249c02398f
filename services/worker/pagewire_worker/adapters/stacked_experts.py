"""Adapters of all experts of a layer in one pair of tensors: target_parameters of PEFT.

The layout is that of `ParamWrapper` in peft/tuners/lora/layer.py since PEFT 0.19. Before, inputs
and outputs were exchanged where a parameter is [experts, outputs, inputs], as it is in all families
but gpt-oss.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class StackedExperts:
    """How the adapter of a parameter is cut into those of matrices.

    Attributes:
        num_experts: Experts of the layer.
        has_gates: Whether the parameter is gate_up_proj.
        is_alternating: Whether the rows of both alternate; else those of the gates come first.
    """

    num_experts: int
    has_gates: bool
    is_alternating: bool

    def split(self, down: Tensor, up: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield `down` and `up` of each matrix, one expert after the other: of gates, and of the
        values that they multiply.

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
