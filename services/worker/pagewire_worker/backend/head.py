"""Classification heads: small networks that map the vector of a prompt to one number per label."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_shared.errors import StartupError
from pagewire_shared.sampling.pooling import PoolingKind

Step = Callable[[Tensor], Tensor]
"""Maps [1, inputs] to [1, outputs]."""


class ClassificationHead:
    """A head with its weights.

    Args:
        kind: The vector that the head takes: of the first token, the last, or the mean.
        num_labels: Numbers that it returns.
        steps: Layers, the first one first.
    """

    def __init__(self, kind: PoolingKind, num_labels: int, steps: Sequence[Step]) -> None:
        self.kind: PoolingKind = kind
        self.num_labels = num_labels
        self._steps = steps

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the scores [n, labels] of `vectors` [n, hidden], in float32.

        Rows are computed one by one: the bits of one do not depend on the others.
        """
        return torch.cat([self._scores(row[None]) for row in vectors])

    def _scores(self, row: Tensor) -> Tensor:
        for step in self._steps:
            row = step(row)
        return row.float()


def linear_step(weight: Tensor, bias: Tensor | None) -> Step:
    """Return a linear layer."""
    return lambda x: functional.linear(x, weight, bias)


def num_labels_of(data: Mapping[str, Any]) -> int:
    """Return the number of labels in the content of a config.json. Raises StartupError."""
    labels = data.get("id2label")
    number = len(labels) if isinstance(labels, dict) else data.get("num_labels", 2)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise StartupError(f"config.json: num_labels must be a positive integer, got {number!r}")
    return number
