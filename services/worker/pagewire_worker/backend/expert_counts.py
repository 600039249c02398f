"""Counts how many tokens each expert computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError


@dataclass(frozen=True, slots=True)
class ExpertCounts:
    """Tokens of each expert since counting began, as the backend goes on adding them.

    Attributes:
        tokens: int64 [experts] by the number of the layer, of layers with experts.
    """

    tokens: Mapping[int, Tensor]

    @staticmethod
    def of(sizes: Mapping[int, int], device: torch.device) -> "ExpertCounts":
        """Return counts of 0; `sizes` has the number of experts by that of the layer."""
        return ExpertCounts(
            {
                layer: torch.zeros(size, dtype=torch.int64, device=device)
                for layer, size in sizes.items()
            }
        )

    def imbalance(self, layer: int) -> float:
        """Return the tokens of the busiest expert of a layer divided by the mean; 1 without any."""
        tokens = self.tokens[layer]
        total = int(tokens.sum())
        return int(tokens.max()) * len(tokens) / total if total else 1.0


def no_expert_counts(kernel_set: str) -> StartupError:
    """Return the error for a backend that does not count."""
    return StartupError(
        f"--expert-metrics: {kernel_set} does not count the tokens of experts; the kernels for CPUs"
        " and torch do",
        field="expert_metrics",
    )


@runtime_checkable
class CountsExperts(Protocol):
    """A backend that can count the tokens of experts."""

    def count_experts(self) -> ExpertCounts:
        """Count from now on, beginning with 0. Called once, between two steps."""
        ...
