"""Incremental detokenizer of one choice: emits whole characters only, and the rest at the end. The
tokenizer itself stays behind a protocol."""

import codecs
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

DecodeStep = Callable[[int], str | None]
"""Takes the next token id; returns the text that became complete, or None."""

NUM_PRIMING_TOKENS = 6
"""Number of last prompt tokens that the decoder sees first: tokenizers that mark word starts drop
the space of the very first token they decode."""

MAX_PENDING_TOKENS = 4
"""Most tokens that wait for a whole character, which has at most four bytes. A stream that has none
in them may never have one, and is decoded from its first waiting token on with every further one.
"""


class StreamTokenizer(Protocol):
    """The methods that a detokenizer needs of a tokenizer."""

    def open_stream(self, first_ids: Sequence[int], *, skip_special_tokens: bool) -> DecodeStep:
        """Return a decoder that has already seen `first_ids`."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of whole `token_ids`."""
        ...

    def byte_reader(self, *, skip_special_tokens: bool) -> Callable[[int], bytes] | None:
        """Return a function from token to bytes, where texts are these bytes and nothing else; None
        for other tokenizers."""
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
        self._from_bytes: _ByteText | None = None

    @property
    def num_pending(self) -> int:
        """Number of tokens without text so far, which the next token is decoded with."""
        return len(self._pending_ids)

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes; empty while a character is incomplete."""
        if self._from_bytes is not None:
            return self._push_bytes([token_id])
        try:
            text = self._step(token_id)
        except BrokenStreamError:
            # Byte-fallback decoders may rewrite text that they returned; go on from here.
            self._pending_ids.append(token_id)
            text = self._pending_text()
            self._mark_shown()
            self._step = self._open()
            return text
        if text is None:
            self._pending_ids.append(token_id)
            return self._give_up_waiting() if self.num_pending >= MAX_PENDING_TOKENS else ""
        if self._pending_ids:
            self._mark_shown()
        self._shown_ids.append(token_id)
        return text

    def flush(self) -> str:
        """Return the text of tokens that never became a whole character, as replacement
        characters."""
        if self._from_bytes is not None:
            text, self._from_bytes = self._from_bytes.end(), None
            return text
        if not self._pending_ids:
            return ""
        text = self._pending_text()
        self._mark_shown()
        return text

    def _give_up_waiting(self) -> str:
        """Return the text of the waiting tokens as far as it is known; none waits afterwards."""
        read = self._tokenizer.byte_reader(skip_special_tokens=self._skip_special_tokens)
        if read is not None:
            self._from_bytes = _ByteText(read)
            waiting = list(self._pending_ids)
            self._mark_shown()
            return self._push_bytes(waiting)
        newest = self._pending_ids[1 - MAX_PENDING_TOKENS :]
        del self._pending_ids[1 - MAX_PENDING_TOKENS :]
        if not self._pending_text():
            # These have no text at all; a character may have begun behind them.
            self._mark_shown()
            self._step = self._open()
            return "".join(map(self.push, newest))
        self._pending_ids += newest
        text = self._pending_text()
        # As context they would make the decoder wait again.
        self._pending_ids.clear()
        self._step = self._open()
        return text

    def _push_bytes(self, token_ids: Sequence[int]) -> str:
        assert self._from_bytes is not None
        text = "".join(map(self._from_bytes.push, token_ids))
        if self._from_bytes.is_whole:
            # Back to the usual decoder. Text made of bytes needs no context.
            self._from_bytes = None
            self._shown_ids.clear()
            self._step = self._open()
        return text

    def _open(self) -> DecodeStep:
        return self._tokenizer.open_stream(
            list(self._shown_ids), skip_special_tokens=self._skip_special_tokens
        )

    def _mark_shown(self) -> None:
        self._shown_ids.extend(self._pending_ids)
        self._pending_ids.clear()

    def _pending_text(self) -> str:
        skip = self._skip_special_tokens
        shown_ids = list(self._shown_ids)
        before = self._tokenizer.decode(shown_ids, skip_special_tokens=skip)
        whole = self._tokenizer.decode(shown_ids + self._pending_ids, skip_special_tokens=skip)
        return whole[len(before) :]


class _ByteText:
    """Text of tokens that stand for bytes; each token is decoded once."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def is_whole(self) -> bool:
        """Whether no part of a character waits."""
        return not self._decoder.getstate()[0]

    def push(self, token_id: int) -> str:
        """Return the text that a token completes."""
        return self._decoder.decode(self._read(token_id))

    def end(self) -> str:
        """Return a replacement character for an incomplete character."""
        return self._decoder.decode(b"", final=True)
