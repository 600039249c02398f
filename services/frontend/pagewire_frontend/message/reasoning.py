"""Splits a model's reasoning, which is in tags, from the rest of its answer."""

from dataclasses import dataclass
from typing import Final

from pagewire_frontend.message.pieces import MessagePieces, MessageReader, merged
from pagewire_frontend.message.text_machine import num_held


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """A format of reasoning.

    Attributes:
        name: Its name in flags.
        begin, end: The tags.
        is_open: Answers begin inside a thought whatever the prompt ends with, unless it ends with
            a closed thought.
    """

    name: str
    begin: str = "<think>"
    end: str = "</think>"
    is_open: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that must not be hidden although they may be special tokens."""
        return (self.begin, self.end)

    def opens_in(self, prompt_end: str) -> bool:
        """Return whether an answer begins inside a thought.

        Args:
            prompt_end: Text that the chat template writes before an answer.
        """
        written = prompt_end.rstrip()
        if written.endswith(self.begin):
            return True
        return self.is_open and not written.endswith(self.end)


REASONING_FORMATS: Final = {
    item.name: item
    for item in (
        ReasoningFormat(name="deepseek_r1", is_open=True),
        ReasoningFormat(name="qwen3"),
        ReasoningFormat(name="mistral", begin="[THINK]", end="[/THINK]"),
    )
}


def find_reasoning(template: str) -> ReasoningFormat | None:
    """Return the format whose tag a chat template contains, or None."""
    for name in ("qwen3", "mistral"):
        if REASONING_FORMATS[name].begin in template:
            return REASONING_FORMATS[name]
    return None


class ThoughtReader:
    """Takes text up to the end tag as reasoning, where a thought is open or a tag opens it at the
    beginning. The rest goes to another reader. White space around a thought belongs to its tags. A
    thought that is cut off is reasoning to its end."""

    def __init__(self, inner: MessageReader, style: ReasoningFormat, *, is_open: bool) -> None:
        self._inner = inner
        self._style = style
        self._is_open = is_open
        self._state = "begin"
        self._buffer = ""
        self._has_begun = False

    @property
    def num_calls(self) -> int:
        """Tool calls so far."""
        return self._inner.num_calls

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        if self._state == "said":
            return self._inner.push(text)
        self._buffer += text
        return self._take(is_ended=False)

    def finish(self) -> MessagePieces:
        """Return the pieces that were held back."""
        return merged(self._take(is_ended=True), self._inner.finish())

    def _take(self, *, is_ended: bool) -> MessagePieces:
        if self._state == "begin":
            self._begin(is_ended)
        reasoning = self._thought(is_ended) if self._state == "thought" else ""
        if self._state == "behind":
            self._buffer = self._buffer.lstrip()
            if self._buffer:
                self._state = "said"
        if self._state != "said":
            return MessagePieces(reasoning=reasoning)
        said, self._buffer = self._buffer, ""
        return merged(MessagePieces(reasoning=reasoning), self._inner.push(said))

    def _begin(self, is_ended: bool) -> None:
        text = self._buffer.lstrip()
        if text.startswith(self._style.begin):
            self._buffer = text[len(self._style.begin) :]
            self._state = "thought"
        elif is_ended or not self._style.begin.startswith(text):
            self._state = "thought" if self._is_open else "said"

    def _thought(self, is_ended: bool) -> str:
        if not self._has_begun:
            self._buffer = self._buffer.lstrip()
        before, end, behind = self._buffer.partition(self._style.end)
        if end:
            self._buffer, self._state = behind, "behind"
            return before.rstrip()
        # Hold back a possible beginning of the tag, and the white space before it.
        held = 0 if is_ended else num_held(before, self._style.end)
        shown = before[: len(before) - held].rstrip()
        self._buffer = before[len(shown) :]
        self._has_begun = self._has_begun or bool(shown)
        return shown
