"""Encodes commands to a server of LMCache, and decodes its answers: the protocol of `lm://` URLs in
LMCache 0.5, fixed structures over TCP.

There is no answer to a put, and no version in any message: what the server is must be known.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pagewire_shared.errors import WireError

KEY_BYTES: Final = 150
_COMMAND: Final = struct.Struct(f"<9i{KEY_BYTES}s")
_ANSWER: Final = struct.Struct("<9i")
ANSWER_BYTES: Final = _ANSWER.size

_BINARY_FORMAT: Final = 4
_UINT8: Final = 6
_NO_PLACE: Final = 0
_FOUND: Final = 200
_NOT_FOUND: Final = 400


class EntryCommand(IntEnum):
    """What the server is asked for."""

    PUT = 1
    GET = 2
    EXIST = 3


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """Answer to GET or EXIST; `num_bytes` follow it."""

    is_there: bool
    num_bytes: int


def key_of(layout: bytes, name: bytes) -> str:
    """Return the key of a block: model, world size, rank, hash and type, as LMCache has them."""
    return f"pagewire-{layout.hex()}@1@0@{name.hex()}@uint8"


def encode(command: EntryCommand, key: str, num_bytes: int = 0) -> bytes:
    """Return a command; the bytes of a put follow it."""
    text = key.encode()
    assert len(text) <= KEY_BYTES, "a key fits its field"
    shape = (num_bytes, 0, 0, 0)
    head = (command, num_bytes, _BINARY_FORMAT, _UINT8, _NO_PLACE, *shape)
    return _COMMAND.pack(*head, text.ljust(KEY_BYTES))


def decode(data: bytes) -> EntryAnswer:
    """Return an answer. Raises WireError for what the server never says."""
    code, num_bytes, *_ = _ANSWER.unpack(data)
    if code not in (_FOUND, _NOT_FOUND) or num_bytes < 0:
        raise WireError(f"the LMCache server answers {code} with {num_bytes} bytes")
    return EntryAnswer(code == _FOUND, num_bytes if code == _FOUND else 0)
