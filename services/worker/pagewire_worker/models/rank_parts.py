"""Layers of which each rank of a group has a part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import Tensor
from torch.nn import functional

from pagewire_worker.backend.collectives import ALONE, Collectives
from pagewire_worker.layers.linear import Linear


class SummedLinear:
    """A matrix whose inputs are divided between ranks: the sum of their products."""

    __slots__ = ("_collectives", "_part")

    def __init__(self, part: Linear, collectives: Collectives) -> None:
        self._part = part
        self._collectives = collectives

    def __call__(self, x: Tensor) -> Tensor:
        """Map this rank's inputs [tokens, inputs] to [tokens, outputs] of all."""
        return self._collectives.all_reduce(self._part(x))


class VocabularyPart:
    """An embedding of which this rank has the rows of some tokens.

    Args:
        rows: [tokens of this rank, hidden].
        first_token: Of the first row.
    """

    __slots__ = ("_collectives", "_first", "_rows")

    def __init__(self, rows: Tensor, first_token: int, collectives: Collectives) -> None:
        self._rows = rows
        self._first = first_token
        self._collectives = collectives

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Map [tokens] to [tokens, hidden]."""
        places = token_ids - self._first
        is_own = (places >= 0) & (places < len(self._rows))
        found = functional.embedding(places.where(is_own, 0), self._rows)
        # The other ranks add zeros, so the sum has the bits of the row.
        return self._collectives.all_reduce(found.where(is_own.unsqueeze(1), 0))


@dataclass(frozen=True, slots=True)
class RankLayers:
    """Makes the layers of a rank those of its group.

    Attributes:
        first_token: Of the rank's part of the vocabulary.
    """

    collectives: Collectives = ALONE
    first_token: int = 0

    def summed(self, part: Linear) -> Linear:
        """Return the sum over the ranks of a matrix whose inputs are divided."""
        if self.collectives.topology.tp_size == 1:
            return part
        return SummedLinear(part, self.collectives)

    def embedding(self, rows: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the embedding, [tokens] -> [tokens, hidden], of which `rows` are this rank's."""
        if self.collectives.topology.tp_size == 1:
            return lambda token_ids: functional.embedding(token_ids, rows)
        return VocabularyPart(rows, self.first_token, self.collectives)


WHOLE: Final = RankLayers()
"""Of a model that is not divided."""
