"""The ends of a stage of a model: where the states of a step come from, and where they go."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from pagewire_worker.backend.collectives import ALONE, Collectives


@dataclass(frozen=True, slots=True)
class StageEnds:
    """The neighbours of a stage; a model of one stage has none.

    What goes between stages has the bits that one process would have kept.
    """

    collectives: Collectives = ALONE

    @property
    def is_first(self) -> bool:
        """Whether the stage looks tokens up."""
        return self.collectives.topology.is_first

    @property
    def is_last(self) -> bool:
        """Whether the stage returns states behind the last norm."""
        return self.collectives.topology.is_last

    def take(self, states: Tensor, faults: Tensor | None) -> None:
        """Fill the states of a step's tokens, and the faults that were found in them so far.

        Args:
            states: [tokens, hidden], contiguous, of the type that stages keep between layers.
            faults: As in StepBatch.
        """
        self.collectives.take(states)
        if faults is not None:
            self.collectives.take(faults)

    def pass_on(self, states: Tensor, faults: Tensor | None) -> None:
        """Give the same to the next stage."""
        self.collectives.pass_on(states)
        if faults is not None:
            self.collectives.pass_on(faults)


WHOLE_MODEL: Final = StageEnds()
"""Of a model of one stage."""
