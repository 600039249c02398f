"""Turns the tokens of one choice into shown text and finds its stop string. Owns the detokenizer
and the stop matcher of the choice, not its tokens."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from pagewire_frontend.models.detokenizer import Detokenizer, StreamTokenizer
from pagewire_frontend.models.marked_detokenizer import MarkedDetokenizer
from pagewire_frontend.session.events import FinishReason
from pagewire_shared.sampling.params import SamplingParams

NO_MARKS: Final[Mapping[int, str]] = MappingProxyType({})


class StopMatch(NamedTuple):
    """Outcome of a push: text that may be shown, and the stop string that ended it, or None."""

    text: str
    stop: str | None = None


class StopMatcher:
    """Finds the stop string that is completed first; of several completed by the same character the
    longest, whatever their order. (vLLM takes the first of its list there.)

    The text shown never depends on how the stream was cut into pieces: text that could be the
    beginning of a stop string is held back until the next piece decides.
    """

    def __init__(self, stops: Sequence[str], *, is_kept: bool = False) -> None:
        """Create the stop matcher.

        Args:
            is_kept: Leave the match in the text.
        """
        self._stops = tuple(stops)
        self._is_kept = is_kept
        self._held = ""
        # Characters at the beginning of the held text that complete no match.
        self._num_exempt = 0

    def push(self, text: str, *, can_match: bool = True) -> StopMatch:
        """Take the next piece of text. With `can_match` false no match ends in the piece, but a
        match that a later piece completes may begin in it, as in vLLM."""
        if not self._stops:
            return StopMatch(text)
        buffer = self._held + text
        if not can_match:
            self._num_exempt = len(buffer)
        found = self._first_match(buffer)
        if found is not None:
            begin, stop = found
            self._held = ""
            end = begin + len(stop) if self._is_kept else begin
            return StopMatch(buffer[:end], stop)
        num_shown = len(buffer) - self._num_held(buffer)
        self._held = buffer[num_shown:]
        self._num_exempt = max(0, self._num_exempt - num_shown)
        return StopMatch(buffer[:num_shown])

    def flush(self) -> str:
        """Return the held text: the stream ended without a match."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, buffer: str) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            begin = buffer.find(stop, max(0, self._num_exempt - len(stop) + 1))
            if begin >= 0 and (best is None or (begin + len(stop), begin) < best[:2]):
                best = (begin + len(stop), begin, stop)
        return (best[1], best[2]) if best else None

    def _num_held(self, buffer: str) -> int:
        longest = min(len(buffer), max(map(len, self._stops)) - 1)
        for length in range(longest, 0, -1):
            tail = buffer[len(buffer) - length :]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0


ChoiceEvent = tuple[int, str, str | None]
"""Outcome of a push: how many of its tokens belong to the output (fewer than all after a match),
the text that is shown, and the stop string that ended it. A plain tuple: one is made per token."""


class ChoiceText:
    """Turns the tokens of one choice into text."""

    def __init__(
        self,
        tokenizer: StreamTokenizer,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        eos_token_ids: Sequence[int],
        *,
        marks: Mapping[int, str] = NO_MARKS,
    ) -> None:
        opened = partial(Detokenizer, tokenizer, skip_special_tokens=params.skip_special_tokens)
        self._detokenizer = (
            MarkedDetokenizer(prompt_token_ids, marks, opened)
            if marks
            else opened(prompt_token_ids)
        )
        self._matcher = StopMatcher(params.stop, is_kept=params.include_stop_str_in_output)
        self._has_stops = bool(params.stop)
        self._min_tokens = params.min_tokens
        # Stop tokens are part of the ids but not of the text.
        self._silent_ids = frozenset(eos_token_ids) | frozenset(params.stop_token_ids)
        self._num_tokens = 0

    def push(self, token_ids: Sequence[int]) -> ChoiceEvent:
        """Take the next tokens, one by one so that a match cuts exactly after its last token."""
        shown = ""
        num_tokens = self._num_tokens
        for token_id in token_ids:
            num_tokens += 1
            can_stop = num_tokens > self._min_tokens
            if can_stop and token_id in self._silent_ids:
                continue
            text = self._detokenizer.push(token_id)
            if not self._has_stops:
                shown += text
            elif text:
                match = self._matcher.push(text, can_match=can_stop)
                shown += match.text
                if match.stop is not None:
                    return num_tokens - self._num_tokens, shown, match.stop
        self._num_tokens = num_tokens
        return len(token_ids), shown, None

    def flush(self) -> ChoiceEvent:
        """Return the text that was held back; the choice ended. The text may hold a stop string: a
        last token that also begins a character kept the string back."""
        can_stop = self._num_tokens > self._min_tokens
        match = self._matcher.push(self._detokenizer.flush(), can_match=can_stop)
        if match.stop is not None:
            return 0, match.text, match.stop
        return 0, match.text + self._matcher.flush(), None


def natural_end(
    token_ids: Sequence[int], params: SamplingParams, eos_token_ids: Sequence[int]
) -> tuple[FinishReason, int | None] | None:
    """Return the reason why these tokens already are a whole output, and the stop token asked for;
    None if they are not.

    Needed when the notice of an end was lost together with its scheduler: a choice that has ended
    must not be continued.
    """
    if not token_ids:
        return None
    last = token_ids[-1]
    if len(token_ids) > params.min_tokens:
        if last in params.stop_token_ids:
            return FinishReason.STOP, last
        if last in eos_token_ids:
            return FinishReason.STOP, None
    if params.max_tokens is not None and len(token_ids) >= params.max_tokens:
        return FinishReason.LENGTH, None
    return None
