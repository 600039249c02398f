"""Progress of the log-probabilities of a prompt: the next position, but not the values."""

from collections.abc import Sequence
from dataclasses import dataclass

from pagewire_frontend.session.journal_records import ReceiveOutcome, Score

FIRST_POSITION = 1
"""Nothing predicts the first token of a prompt."""


@dataclass(slots=True)
class PromptJournal:
    """Positions of one prompt, taken in order, each once.

    Attributes:
        num_tokens: Length of the prompt.
        next_position: Position that is wanted next.
    """

    num_tokens: int
    next_position: int = FIRST_POSITION

    @property
    def is_complete(self) -> bool:
        """Whether every position was taken."""
        return self.next_position >= self.num_tokens

    def take(
        self, first_position: int, scores: Sequence[Score]
    ) -> tuple[ReceiveOutcome, list[Score]]:
        """Take exactly the next positions; return the outcome for the piece, and its new part."""
        num_known = self.next_position - first_position
        if num_known < 0:
            return ReceiveOutcome.GAP, []
        if self.is_complete or num_known >= len(scores):
            return ReceiveOutcome.DUPLICATE, []
        new = list(scores[num_known:])
        self.next_position += len(new)
        return ReceiveOutcome.ACCEPTED, new
