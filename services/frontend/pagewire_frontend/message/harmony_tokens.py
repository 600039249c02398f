"""The tokens of the harmony format, and the characters that stand for them in the text of an
answer, so that no text can be taken for a token.

The characters are noncharacters of Unicode (U+FDD0 and up), which no text interchanges.
"""

from collections.abc import Mapping
from typing import Final

START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN = map(chr, range(0xFDD0, 0xFDD7))
MARKS: Final[Mapping[str, str]] = {
    "<|start|>": START,
    "<|channel|>": CHANNEL,
    "<|constrain|>": CONSTRAIN,
    "<|message|>": MESSAGE,
    "<|end|>": END,
    "<|call|>": CALL,
    "<|return|>": RETURN,
}
"""Spelling of a token to its mark."""
STOPS: Final = ("<|return|>", "<|call|>")
"""Tokens that end an answer."""


def with_marks(text: str) -> str:
    """Return a text of a chat template with the marks in place of the tokens."""
    for spelling, mark in MARKS.items():
        text = text.replace(spelling, mark)
    return text
