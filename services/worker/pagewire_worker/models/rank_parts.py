"""Layers of which each rank of a group has a part."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from pagewire_worker.backend.collectives import ALONE, Collectives
from pagewire_worker.layers.linear import Linear

Embedding = Callable[[Tensor], Tensor]
"""[tokens] -> [tokens, hidden]."""


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
    """An embedding of which this rank has some tokens.

    Args:
        own: Looks up [n] tokens by their places among those of this rank.
        num_tokens: How many these are.
        first_token: The first of them.
    """

    __slots__ = ("_collectives", "_first", "_num_tokens", "_own")

    def __init__(
        self, own: Embedding, num_tokens: int, first_token: int, collectives: Collectives
    ) -> None:
        self._own = own
        self._num_tokens = num_tokens
        self._first = first_token
        self._collectives = collectives

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Map [tokens] to [tokens, hidden]."""
        places = token_ids - self._first
        is_own = (places >= 0) & (places < self._num_tokens)
        found = self._own(places.where(is_own, 0))
        # The other ranks add -0, so the sum has the bits of the row.
        return self._collectives.all_reduce(found.where(is_own.unsqueeze(1), -0.0))


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

    def embedding(self, own: Embedding, num_tokens: int) -> Embedding:
        """Return the embedding of which `own` has this rank's tokens, as in VocabularyPart."""
        if self.collectives.topology.tp_size == 1:
            return own
        return VocabularyPart(own, num_tokens, self.first_token, self.collectives)


WHOLE: Final = RankLayers()
"""Of a model that is not divided."""
