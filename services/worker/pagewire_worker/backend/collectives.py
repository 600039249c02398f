"""Interface of ranks: processes that compute one model, each a part of its matrices and layers."""

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
    """The place of a rank in its group.

    Attributes:
        tp_rank, tp_size: Among the ranks with the same layers, each with a part of their matrices.
        stage, num_stages: The layers that it has; the first stage has the first ones.
        has_whole_experts: Whether ranks have other experts each, and not a part of every expert.
    """

    tp_rank: int = 0
    tp_size: int = 1
    stage: int = 0
    num_stages: int = 1
    has_whole_experts: bool = False

    @classmethod
    def of(
        cls, rank: int, tp_size: int, num_stages: int, *, has_whole_experts: bool = False
    ) -> "RankTopology":
        """Return the place of a rank by its number. Rank 0 has the last stage: it samples."""
        stage = num_stages - 1 - rank // tp_size
        return cls(rank % tp_size, tp_size, stage, num_stages, has_whole_experts)

    @property
    def rank(self) -> int:
        """Number of the rank in its group."""
        return (self.num_stages - 1 - self.stage) * self.tp_size + self.tp_rank

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self.tp_size * self.num_stages

    @property
    def is_first(self) -> bool:
        """Whether its stage has the embedding."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether its stage has the norm and the matrix behind all layers."""
        return self.stage == self.num_stages - 1


class Collectives(Protocol):
    """What the ranks of a stage do together, and stages with each other, in the model thread.

    All ranks of a stage call the same functions in the same order, with tensors of the same shape.
    Each raises RankLostError.
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

    def pass_on(self, x: Tensor) -> None:
        """Give `x` to the rank of the same place in the next stage; it may not have come yet."""
        ...

    def take(self, x: Tensor) -> None:
        """Fill `x`, which is contiguous, with what the stage before has passed on."""
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

    def pass_on(self, x: Tensor) -> None:
        """Have no next stage."""

    def take(self, x: Tensor) -> None:
        """Have no stage before."""


ALONE: Final = Alone()
