"""From tokens to text while they arrive: never half a character, and the tail at the end. Owns
the state of one choice's decoding; the tokenizer itself stays behind a protocol.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

DecodeStep = Callable[[int], str | None]
"""Takes the next token id; returns the text that became complete, or None."""

NUM_PRIMING_TOKENS = 6
"""Last prompt tokens given to the decoder first: tokenizers that mark word starts drop the space of
the very first token they decode."""


class StreamTokenizer(Protocol):
    """What a detokenizer needs of a tokenizer."""

    def open_stream(self, first_ids: Sequence[int], *, skip_special_tokens: bool) -> DecodeStep:
        """Return a decoder that has already seen `first_ids`."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of whole `token_ids`."""
        ...


class BrokenStreamError(ValueError):
    """The decoder lost its place: earlier text changed when a token was added."""


class Detokenizer:
    """Incremental decoding of one choice."""

    def __init__(
        self,
        tokenizer: StreamTokenizer,
        prompt_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        # Tokens whose text is out, as context for the pending ones.
        self._shown_ids = deque(prompt_token_ids[-NUM_PRIMING_TOKENS:], NUM_PRIMING_TOKENS)
        self._pending_ids: list[int] = []
        self._step = self._open()

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes; empty while a character is incomplete."""
        try:
            text = self._step(token_id)
        except BrokenStreamError:
            # Byte-fallback decoders may rewrite what they showed; go on from here.
            self._pending_ids.append(token_id)
            text = self._pending_text()
            self._settle()
            self._step = self._open()
            return text
        if text is None:
            self._pending_ids.append(token_id)
            return ""
        if self._pending_ids:
            self._settle()
        self._shown_ids.append(token_id)
        return text

    def flush(self) -> str:
        """Return the text of tokens that never became a whole character, as replacement
        characters."""
        if not self._pending_ids:
            return ""
        text = self._pending_text()
        self._settle()
        return text

    def _open(self) -> DecodeStep:
        return self._tokenizer.open_stream(
            list(self._shown_ids), skip_special_tokens=self._skip_special_tokens
        )

    def _settle(self) -> None:
        self._shown_ids.extend(self._pending_ids)
        self._pending_ids.clear()

    def _pending_text(self) -> str:
        skip = self._skip_special_tokens
        shown_ids = list(self._shown_ids)
        before = self._tokenizer.decode(shown_ids, skip_special_tokens=skip)
        whole = self._tokenizer.decode(shown_ids + self._pending_ids, skip_special_tokens=skip)
        return whole[len(before) :]
