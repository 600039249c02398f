"""Records of a running beam search: its sequences, and the moves that the next plan sends."""

from dataclasses import dataclass, field

from pagewire_scheduler.core.state.beam_search import BeamSearch
from pagewire_scheduler.core.state.request import Sequence


@dataclass(slots=True)
class BeamMoves:
    """What the next plan tells the worker of a group: forks first, then appended tokens.

    Attributes:
        forks: (slot, slot it becomes a copy of, its choice).
        appended: (slot, token).
    """

    forks: list[tuple[int, int, int]] = field(default_factory=list)
    appended: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class BeamGroup:
    """A search under way.

    Attributes:
        live: The sequences that carry the running beams, the best first.
        scores: Their sums of log-probabilities.
        moves: Moves that were not sent to the worker yet.
    """

    search: BeamSearch
    live: list[Sequence]
    scores: list[float]
    moves: BeamMoves | None = None

    @property
    def is_ready(self) -> bool:
        """Whether every beam has its candidates."""
        return all(sequence.candidates is not None for sequence in self.live)
