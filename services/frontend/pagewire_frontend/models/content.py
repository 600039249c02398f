"""The content of a turn: a text, or a list of text parts, as a client sent it."""

from collections.abc import Sequence

Part = dict[str, str]
Content = str | Sequence[Part]


def text_part(text: str) -> Part:
    """Return a part in the form that chat templates take."""
    return {"type": "text", "text": text}


def text_of(content: Content) -> str:
    """Return the text of a content, parts one behind another."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
