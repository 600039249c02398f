"""Log-probabilities of a prompt between the scheduler and a reader, cut into events that fit a
message. Owns what was not taken yet."""

from collections.abc import Iterable

from pagewire_frontend.session.events import PromptLogprobs
from pagewire_frontend.session.prompt_journal import FIRST_POSITION
from pagewire_frontend.session.token_logprob import TokenLogprob

POSITIONS_PER_EVENT = 1024
"""With 20 alternatives about 300 KB as a message."""


class PromptOutputBuffer:
    """Filled in order by the session, emptied by its reader."""

    def __init__(self) -> None:
        self._waiting: list[TokenLogprob] = []
        self._next_position = FIRST_POSITION

    @property
    def has_waiting(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting)

    def put(self, logprobs: Iterable[TokenLogprob]) -> None:
        """Add the next positions."""
        self._waiting.extend(logprobs)

    def take(self) -> list[PromptLogprobs]:
        """Return what waits, as events in order."""
        waiting, self._waiting = self._waiting, []
        events = []
        for begin in range(0, len(waiting), POSITIONS_PER_EVENT):
            piece = tuple(waiting[begin : begin + POSITIONS_PER_EVENT])
            events.append(PromptLogprobs(self._next_position, piece))
            self._next_position += len(piece)
        return events
