"""Interface of ranks: processes that compute one model, each with a part of its matrices."""

from dataclasses import dataclass
from typing import Final, Protocol

from torch import Tensor

from pagewire_shared.errors import PagewireError


@dataclass
class RankLostError(PagewireError):
    """A rank died, failed or fell silent: its group cannot go on, and the worker must end."""

    code: str = "rank_lost"


@dataclass(frozen=True, slots=True)
class RankTopology:
    """The place of a rank in its group."""

    tp_rank: int = 0
    tp_size: int = 1


class Collectives(Protocol):
    """What the ranks of a group do together, in the model thread.

    All ranks call the same functions in the same order, with tensors of the same shape. Each raises
    RankLostError.
    """

    @property
    def name(self) -> str:
        """How sums are made; part of the numerics fingerprint."""
        ...

    @property
    def topology(self) -> RankTopology:
        """The place of this rank."""
        ...

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of `x` of all ranks, in the type of `x`, which may be overwritten."""
        ...

    def all_gather(self, x: Tensor, dim: int) -> Tensor:
        """Return `x` of all ranks, one behind the other along `dim`."""
        ...

    def broadcast(self, x: Tensor, root: int) -> Tensor:
        """Return `x` of the rank `root`; `x` may be overwritten."""
        ...


class Alone:
    """The collectives of a single rank."""

    name = "alone"
    topology = RankTopology()

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return `x`."""
        return x

    def all_gather(self, x: Tensor, dim: int) -> Tensor:
        """Return `x`."""
        return x

    def broadcast(self, x: Tensor, root: int) -> Tensor:
        """Return `x`."""
        return x


ALONE: Final = Alone()
