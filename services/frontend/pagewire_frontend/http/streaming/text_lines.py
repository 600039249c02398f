"""Chunks of a stream that differ by their text alone. Pure."""

import uuid
from collections.abc import Callable
from typing import Any, Final

import orjson

from pagewire_frontend.http.streaming.event_stream import event_bytes

TextLine = Callable[[str], bytes]
"""Makes the chunk of the next text, as it is streamed; empty when it has nothing to show."""

# What stands nowhere else in a chunk, whatever a model is called.
_MARK: Final = uuid.uuid4().hex


def ready_line(chunk: Callable[[str], Any]) -> TextLine:
    """Return what puts text into a ready line: building the whole chunk for each token takes ten
    times as long. Args: `chunk` returns the chunk of a text."""
    head, _, tail = event_bytes(chunk(_MARK)).partition(orjson.dumps(_MARK))

    def line(text: str) -> bytes:
        return head + orjson.dumps(text) + tail if text else b""

    return line
