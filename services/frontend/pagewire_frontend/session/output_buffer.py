"""Holds the events of a request until its reader takes them. Deltas are merged per choice, so the
buffer is bounded by the request's own output."""

from collections.abc import Iterable, Sequence

from pagewire_frontend.session.events import Delta, Event, Finished, PromptLogprobs
from pagewire_frontend.session.journal_records import FIRST_POSITION, ChoiceJournal, TokenLogprob
from pagewire_frontend.session.selection import Selection

POSITIONS_PER_EVENT = 1024
"""Positions of a prompt per event; with 20 alternatives about 300 KB as a message."""


class PromptOutputBuffer:
    """Prompt log-probabilities, filled in order by the session and emptied by its reader."""

    def __init__(self) -> None:
        self._waiting: list[TokenLogprob] = []
        self._next_position = FIRST_POSITION

    @property
    def has_waiting(self) -> bool:
        """Whether any positions wait."""
        return bool(self._waiting)

    def put(self, logprobs: Iterable[TokenLogprob]) -> None:
        """Add the next positions."""
        self._waiting.extend(logprobs)

    def take(self) -> list[PromptLogprobs]:
        """Return the waiting positions, as events in order."""
        waiting, self._waiting = self._waiting, []
        events = []
        for begin in range(0, len(waiting), POSITIONS_PER_EVENT):
            piece = tuple(waiting[begin : begin + POSITIONS_PER_EVENT])
            events.append(PromptLogprobs(self._next_position, piece))
            self._next_position += len(piece)
        return events


class OutputBuffer:
    """Output of a request, filled by the session and emptied by its reader."""

    def __init__(self, selection: Selection | None, *, is_split: bool = False) -> None:
        """Create the output buffer.

        Args:
            selection: Chooses among all choices once they have ended; None for all.
            is_split: Deltas are not merged; not with a selection.
        """
        self._is_split = is_split
        self._selection = selection
        self._prompt = PromptOutputBuffer()
        self._is_prompt_complete = False
        self._deltas: dict[int, Delta] = {}
        self._ended: list[Finished] = []
        self.is_empty = True
        """Whether nothing waits; read for every token."""

    def put_prompt(self, logprobs: Sequence[TokenLogprob], *, is_complete: bool) -> None:
        """Add log-probabilities of the next tokens of the prompt, shown once all have come."""
        self._prompt.put(logprobs)
        self.is_empty = False
        self._is_prompt_complete = is_complete

    def put_delta(self, delta: Delta) -> None:
        """Add the next tokens of a choice and their text."""
        self.is_empty = False
        key = len(self._deltas) if self._is_split else delta.choice
        waiting = self._deltas.setdefault(key, delta)
        if waiting is not delta:
            waiting.token_ids += delta.token_ids
            waiting.logprobs += delta.logprobs
            waiting.text += delta.text

    def put_end(self, end: Finished) -> None:
        """Add the end of a choice."""
        self._ended.append(end)
        self.is_empty = False

    def drop_answer(self) -> None:
        """Forget tokens and ends: they will come anew, or no reader may see them."""
        self._deltas.clear()
        self._ended.clear()

    @property
    def has_ready(self) -> bool:
        """Whether there are events to take."""
        has_prompt = self._is_prompt_complete and self._prompt.has_waiting
        return has_prompt or bool(self._deltas or self._ended)

    def take(self, choices: Sequence[ChoiceJournal]) -> list[Event]:
        """Return the ready events, in order: of the prompt, then tokens, then ends."""
        events: list[Event] = [*self._prompt.take()] if self._is_prompt_complete else []
        if self._ended and self._selection is not None:
            events += self._selection.events(choices, self._deltas, self._ended)
        else:
            events += self._deltas.values()
            events += self._ended
        self._deltas.clear()
        self._ended.clear()
        self.is_empty = self._is_prompt_complete or not self._prompt.has_waiting
        return events
