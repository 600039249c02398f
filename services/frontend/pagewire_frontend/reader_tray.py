"""What a request has ready for its reader, merged per choice while nobody takes it, so it is
bounded by the request's own output. Pure; owns what was not taken yet."""

from collections.abc import Sequence

from pagewire_frontend.choice_journal import ChoiceJournal
from pagewire_frontend.events import Delta, Finished, PromptLogprobs
from pagewire_frontend.prompt_tray import PromptTray
from pagewire_frontend.selection import Selection
from pagewire_frontend.token_logprob import TokenLogprob


class ReaderTray:
    """Filled by the session, emptied by its reader."""

    def __init__(self, selection: Selection | None) -> None:
        """Args: `selection` chooses among all choices once they have ended; None for all."""
        self._selection = selection
        self._prompt = PromptTray()
        self._is_prompt_complete = False
        self._deltas: dict[int, Delta] = {}
        self._ended: list[Finished] = []

    def put_prompt(self, logprobs: Sequence[TokenLogprob], *, is_complete: bool) -> None:
        """Add log-probabilities of the next tokens of the prompt, shown once all have come."""
        self._prompt.put(logprobs)
        self._is_prompt_complete = is_complete

    def put_tokens(
        self,
        choice: int,
        first_position: int,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprob],
        text: str,
    ) -> None:
        """Add the next tokens of a choice and the text that they complete."""
        delta = self._deltas.get(choice)
        if delta is None:
            ids, known = list(token_ids), list(logprobs)
            self._deltas[choice] = Delta(choice, first_position, ids, text, known)
            return
        delta.token_ids += token_ids
        if logprobs:
            delta.logprobs += logprobs
        delta.text += text

    def put_end(self, end: Finished) -> None:
        """Add the end of a choice."""
        self._ended.append(end)

    def drop_answer(self) -> None:
        """Forget tokens and ends: they will come anew, or nobody may see them."""
        self._deltas.clear()
        self._ended.clear()

    @property
    def has_ready(self) -> bool:
        """Whether there is something to take."""
        has_prompt = self._is_prompt_complete and self._prompt.has_waiting
        return has_prompt or bool(self._deltas or self._ended)

    def take(self, choices: Sequence[ChoiceJournal]) -> list[PromptLogprobs | Delta | Finished]:
        """Return what is ready, in order: of the prompt, then tokens, then ends."""
        prompt = self._prompt.take() if self._is_prompt_complete else []
        deltas, self._deltas = self._deltas, {}
        ended, self._ended = self._ended, []
        if self._selection is None or not ended:
            return [*prompt, *deltas.values(), *ended]
        return [*prompt, *self._selection.events(choices, deltas, ended)]
