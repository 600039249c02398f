"""The harmony format of gpt-oss: an answer is messages in channels, with headers of special tokens.

    <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...<|return|>

Analysis is reasoning, a message to a function is a call, and everything else is content.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pagewire_frontend.message import harmony_tokens as tokens
from pagewire_frontend.message.call_writer import CallWriter, new_call_id
from pagewire_frontend.message.harmony_header import (
    ASSISTANT,
    FUNCTIONS,
    MAX_CHARS,
    TO,
    Header,
    may_be_header,
    read_header,
)
from pagewire_frontend.message.pieces import MessagePieces, joined

_CUT: Final = re.compile(f"([{tokens.START}-{tokens.RETURN}])")
_BETWEEN: Final = "\n\n"
"""Stands between two messages of one kind where the client gets them as one text."""

_Kind = Literal["reasoning", "content", "call", "hidden"]


class HarmonyReader:
    """Reads one choice. Text that a header should precede, but does not, is content."""

    def __init__(self, writer: CallWriter, names: Collection[str], opening: str) -> None:
        """Create the reader.

        Args:
            writer: Numbers the calls.
            names: The tools that may be called.
            opening: What the prompt ends with, from its last `<|start|>` on, with marks.
        """
        self._writer = writer
        self._names = names
        self._header: str | None = None
        self._author: str | None = None
        # The kind of the open message; None between messages.
        self._kind: _Kind | None = None
        self._is_begun = False
        self._has_text = {"reasoning": False, "content": False}
        self._has_arguments = False
        self._parts: list[MessagePieces] = []
        self._reasoning: list[str] = []
        self._content: list[str] = []
        self.push(opening)
        if self._header is not None and tokens.CHANNEL not in self._header:
            # What follows is not the rest of the author's name.
            self._author = read_header(self._header, None).author
            self._header = ""

    @property
    def num_calls(self) -> int:
        """Tool calls so far."""
        return self._writer.num_calls

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        for piece in _CUT.split(text):
            if piece in _STEPS:
                _STEPS[piece](self, piece)
            elif piece:
                self._take_text(piece)
        return self._take()

    def finish(self) -> MessagePieces:
        """Return the pieces that were held back."""
        self._end_message()
        return self._take()

    def _take(self) -> MessagePieces:
        parts, self._parts = self._parts, []
        reasoning, self._reasoning = self._reasoning, []
        content, self._content = self._content, []
        return MessagePieces(
            "".join(reasoning),
            "".join(content),
            joined(delta for part in parts for delta in part.calls),
            parts=tuple(parts),
        )

    def _start(self, _: str) -> None:
        self._end_message()
        self._header, self._author = "", None

    def _channel(self, mark: str) -> None:
        if self._header is None:
            # <|start|> and the author are missing.
            self._start(mark)
            self._author = ASSISTANT
        self._add_mark(mark)

    def _constrain(self, mark: str) -> None:
        # A content type comes behind a channel or a recipient.
        if self._header is not None and (tokens.CHANNEL in self._header or TO in self._header):
            self._add_mark(mark)

    def _add_mark(self, mark: str) -> None:
        """Add a mark to the header, unless marks have made it too long: text will end it then."""
        assert self._header is not None
        if len(self._header) <= MAX_CHARS:
            self._header += mark

    def _message(self, _: str) -> None:
        if self._header is not None:
            self._open(read_header(self._header, self._author))
        elif self._kind is None:
            self._open(Header())

    def _end(self, _: str) -> None:
        self._end_message()

    def _take_text(self, text: str) -> None:
        if self._header is not None:
            text = self._take_header(text)
        if self._kind is None:
            # Behind a message another one begins, without a header.
            text = text.lstrip()
            if text:
                self._open(Header())
        self._add(text)

    def _take_header(self, text: str) -> str:
        """Take text into the header; return what is behind it if it turns out not to be one."""
        for index, char in enumerate(text):
            assert self._header is not None
            self._header += char
            if not may_be_header(self._header, self._author):
                self._open_without_end()
                return text[index + 1 :]
        return ""

    def _open_without_end(self) -> None:
        """Open the message of a header that lacks its end, with the text that is in the header."""
        assert self._header is not None
        header = read_header(self._header, self._author)
        space = self._header[len(self._header.rstrip()) :]
        self._open(Header(author=header.author, channel=header.channel))
        self._add(header.rest and header.rest + space)

    def _open(self, header: Header) -> None:
        self._header = None
        self._is_begun = False
        name = (header.recipient or "").removeprefix(FUNCTIONS)
        if header.author != ASSISTANT or header.recipient == ASSISTANT:
            # The model goes on in the name of another author, or of a tool.
            self._kind = "hidden"
        elif name in self._names:
            self._kind, self._has_arguments = "call", False
            self._writer.begin_call(name)
            self._add_call()
        else:
            self._kind = "reasoning" if header.channel == "analysis" else "content"

    def _add(self, text: str) -> None:
        """Add text to the open message."""
        if not text or self._kind in (None, "hidden"):
            return
        if self._kind == "call":
            self._has_arguments = self._has_arguments or not text.isspace()
            self._writer.add_arguments(text)
            self._add_call()
            return
        is_thought = self._kind == "reasoning"
        shown = self._reasoning if is_thought else self._content
        if not self._is_begun and self._has_text[self._kind]:
            shown.append(_BETWEEN)
        shown.append(text)
        texts = (text, "") if is_thought else ("", text)
        self._parts.append(MessagePieces(*texts, begins=not self._is_begun))
        self._is_begun = self._has_text[self._kind] = True

    def _add_call(self) -> None:
        calls = self._writer.take().calls
        if calls:
            self._parts.append(MessagePieces(calls=calls))

    def _end_message(self) -> None:
        if self._header is not None:
            self._open_without_end()
        elif self._kind == "call" and not self._has_arguments:
            self._add("{}")
        self._kind = None


_STEPS: Final[Mapping[str, Callable[[HarmonyReader, str], None]]] = {
    tokens.START: HarmonyReader._start,
    tokens.CHANNEL: HarmonyReader._channel,
    tokens.CONSTRAIN: HarmonyReader._constrain,
    tokens.MESSAGE: HarmonyReader._message,
    tokens.END: HarmonyReader._end,
    tokens.CALL: HarmonyReader._end,
    tokens.RETURN: HarmonyReader._end,
}


@dataclass(frozen=True, slots=True)
class HarmonyFormat:
    """The format, with the tokens of a model: `ids` by spelling."""

    ids: Mapping[str, int]

    @property
    def marks(self) -> Mapping[int, str]:
        """The marks that stand for tokens in the text of an answer, by token id."""
        return {self.ids[spelling]: mark for spelling, mark in tokens.MARKS.items()}

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        return tuple(self.ids[spelling] for spelling in tokens.STOPS)

    def token(self, spelling: str) -> str:
        """Return a token in the Lark form of llguidance."""
        return f"<[{self.ids[spelling]}]>"

    def new_reader(
        self,
        names: Collection[str],
        *,
        max_calls: int | None,
        prompt_end: str = "",
        opens_turn: bool = True,
    ) -> HarmonyReader:
        """Return a reader for one choice.

        Args:
            names: The tools that may be called.
            max_calls: Calls beyond are dropped; None for any number.
            prompt_end: Text that the chat template writes behind a user's turn.
            opens_turn: The prompt ends with that; else with a turn that the answer continues.
        """
        opening = tokens.with_marks(prompt_end).rpartition(tokens.START)[2]
        if not opens_turn:
            opening = f"{ASSISTANT}{tokens.CHANNEL}final{tokens.MESSAGE}"
        writer = CallWriter(new_call_id, max_calls)
        return HarmonyReader(writer, names, tokens.START + (opening or ASSISTANT))


def find_harmony(template: str, ids: Mapping[str, int]) -> HarmonyFormat | None:
    """Return the format of a model whose chat template writes in it, and whose tokenizer has its
    tokens; None for other models.

    Args:
        template: The chat template.
        ids: Token ids by spelling.
    """
    is_written = "<|channel|>" in template and "<|message|>" in template
    return harmony_of(ids) if is_written else None


def harmony_of(ids: Mapping[str, int]) -> HarmonyFormat | None:
    """Return the format with its tokens among `ids`; None where one is missing."""
    if not tokens.MARKS.keys() <= ids.keys():
        return None
    return HarmonyFormat({spelling: ids[spelling] for spelling in tokens.MARKS})
