"""Hands out hidden states of a model from between its layers, to what drafts from them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError


class StateTap:
    """The states of all tokens of the last step, as they came into some layers.

    Args:
        layers: Numbers of the layers. The number of layers stands for the states after the last
            norm.
    """

    def __init__(self, layers: Sequence[int]) -> None:
        self.layers = tuple(layers)
        self._parts: dict[int, Tensor] = {}

    def wants(self, layer: int) -> bool:
        """Return whether the states that come into `layer` are wanted."""
        return layer in self.layers

    def put(self, layer: int, states: Tensor) -> None:
        """Keep the states [tokens, hidden] that come into `layer`; they are not written any more.

        Those of the step before are forgotten.
        """
        self._parts[layer] = states

    def take(self) -> Tensor | None:
        """Return the states of the last step once, [tokens, layers * hidden]; None without any."""
        parts, self._parts = self._parts, {}
        if len(parts) < len(set(self.layers)):
            return None
        return torch.cat([parts[layer] for layer in self.layers], dim=-1)


def no_states(kernel_set: str) -> StartupError:
    """Return the error for a backend that does not hand out states."""
    return StartupError(
        f"--speculative-config: {kernel_set} does not hand out the hidden states that drafts are "
        "made of; the kernels for CPUs and --cpu-backend torch do",
        field="speculative_config",
    )


@runtime_checkable
class TapsStates(Protocol):
    """A backend that can hand out hidden states."""

    def tap(self, layers: Sequence[int]) -> StateTap:
        """Return a tap of the states that come into `layers`. Called once, between two steps."""
        ...
