"""Turns the tokens of one choice into shown text and finds its stop string. Owns the detokenizer
and the stop matcher of the choice, not its tokens."""

from collections.abc import Sequence

from pagewire_frontend.models.detokenizer import Detokenizer, StreamTokenizer
from pagewire_frontend.session.events import FinishReason
from pagewire_frontend.session.stop import StopMatcher
from pagewire_shared.sampling.params import SamplingParams

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
    ) -> None:
        self._detokenizer = Detokenizer(
            tokenizer, prompt_token_ids, skip_special_tokens=params.skip_special_tokens
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
