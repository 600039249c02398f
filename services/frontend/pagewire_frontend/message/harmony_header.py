"""Reads the headers of messages in the harmony format: author, channel, recipient and content type.

    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>

Headers are read as openai-harmony reads them (parse_header_from_string in its src/encoding.rs), and
more leniently. Tokens are the characters of `harmony_tokens`.
"""

from dataclasses import dataclass
from typing import Final

from pagewire_frontend.message.harmony_tokens import CHANNEL, CONSTRAIN

ASSISTANT: Final = "assistant"
FUNCTIONS: Final = "functions."
"""Names of functions of the client begin with it, as recipients and as authors."""
_AUTHORS: Final = (ASSISTANT, "user", "system", "developer", "tool")
TO: Final = "to="
"""Begins a recipient."""
MAX_CHARS: Final = 256
"""Most characters of a header; names of functions have at most 64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a header says.

    Attributes:
        author: assistant, or another name.
        channel: The name behind `<|channel|>`, or None.
        recipient: The name that the message is sent to, or None.
        rest: Other words, but for a content type: the beginning of a text whose `<|message|>` is
            missing.
    """

    author: str = ASSISTANT
    channel: str | None = None
    recipient: str | None = None
    rest: str = ""


def read_header(text: str, author: str | None) -> Header:
    """Return what a header says.

    Args:
        text: The text behind `<|start|>`, or behind the author where the prompt has named it.
        author: That author; None where the text begins with it.
    """
    text = text.replace(CONSTRAIN, f" {CONSTRAIN}")
    before, _, behind = text.partition(CHANNEL)
    words = before.split()
    if words and _is_author(words[0], author):
        author = words.pop(0).partition(":")[0]
        before = before.split(maxsplit=1)[1] if words else ""
    behind = behind.replace(CHANNEL, " ").lstrip()
    channel = "" if behind.startswith(CONSTRAIN) else behind.partition(" ")[0]
    rest = f"{before} {behind[len(channel) :]}".strip()
    sent = [word for word in rest.split() if word.startswith((TO, FUNCTIONS))]
    recipient = sent[0].removeprefix(TO) if sent else None
    # Behind a recipient, one word is the content type, with or without <|constrain|>.
    types = [word for word in rest.split() if word not in sent]
    is_type = len(types) == 1 and (sent or types[0].startswith(CONSTRAIN))
    # A recipient that was cut off.
    is_type = is_type or (bool(channel) and TO.startswith(rest))
    return Header(
        author=author or ASSISTANT,
        channel=channel or None,
        recipient=recipient or None,
        rest="" if is_type or not types else rest.replace(CONSTRAIN, ""),
    )


def may_be_header(text: str, author: str | None) -> bool:
    """Return whether `text` may be the beginning of a header. Takes the arguments of `read_header`.

    Whatever begins otherwise is a text without a header, which need not be held back.
    """
    if len(text) > MAX_CHARS or "\n" in text:
        return False
    before, channel, _ = text.partition(CHANNEL)
    words = before.split()
    if channel or not words:
        return True
    if author is not None and words == [before] and author.startswith(before):
        # Some models repeat it.
        return True
    is_named = author is None or _is_author(words[0], author)
    others = words[1:] if is_named and not words[0].startswith(TO) else words
    return all(word.startswith((TO, CONSTRAIN)) or TO.startswith(word) for word in others)


def _is_author(word: str, known: str | None) -> bool:
    name = word.partition(":")[0]
    if known is not None:
        return name == known
    return name in _AUTHORS or name.startswith(FUNCTIONS)
