"""Frames between a frontend and its grammar checkers: JSON objects, each behind its length.

A frontend asks, and a checker answers each question with `{"error": null}` or an error. Questions
are `{"op": "load", "model", "tokenizer", "vocab_size", "eos_token_ids"}`, the tokenizer being the
text of a tokenizer.json, and `{"op": "check", "model", "kind", "text", "choice"}`.
"""

import json
import struct
from typing import Any, Final

LENGTH: Final = struct.Struct("<I")


def pack(message: dict[str, Any]) -> bytes:
    """Return a message with its length in front."""
    body = json.dumps(message).encode()
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> dict[str, Any]:
    """Return the message behind a length."""
    message: dict[str, Any] = json.loads(body)
    return message
