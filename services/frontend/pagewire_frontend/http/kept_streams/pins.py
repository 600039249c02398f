"""Derives what is drawn for an answer from one secret, so that it can be made again."""

import hashlib
import os
import string
import time
from dataclasses import dataclass
from typing import Final

from pagewire_shared.identity.ids import ID_BYTES, RequestId

SECRET_BYTES: Final = 32
_SEED_BYTES: Final = 8
_ALPHABET: Final = string.ascii_letters + string.digits
_CALL: Final = "call_"


@dataclass(frozen=True, slots=True)
class Pins:
    """The drawn values of one answer.

    Attributes:
        secret: SECRET_BYTES random bytes.
        created: Seconds since 1970.
    """

    secret: bytes
    created: int

    def request_id(self, prompt: int) -> RequestId:
        """Return the id of the request of a prompt."""
        return RequestId(self._derived(b"request %d" % prompt, ID_BYTES))

    def seed(self, prompt: int) -> int:
        """Return the seed of a prompt whose client gave none, 64 bits."""
        return int.from_bytes(self._derived(b"seed %d" % prompt, _SEED_BYTES), "big")

    def call_id(self, choice: int, index: int, drawn: str) -> str:
        """Return the id of tool call `index` of a choice, in the form of one that was drawn."""
        prefix = _CALL if drawn.startswith(_CALL) else ""
        number = int.from_bytes(self._derived(b"call %d %d" % (choice, index), 32), "big")
        letters = []
        for _ in range(len(drawn) - len(prefix)):
            number, letter = divmod(number, len(_ALPHABET))
            letters.append(_ALPHABET[letter])
        return prefix + "".join(letters)

    def item_id(self, side: str, index: int, prefix: str) -> str:
        """Return the id of item `index` of a response, of its input or its output."""
        said = b"item %b %d" % (side.encode(), index)
        return f"{prefix}_{self._derived(said, ID_BYTES).hex()}"

    def _derived(self, purpose: bytes, num_bytes: int) -> bytes:
        return hashlib.blake2b(purpose, key=self.secret, digest_size=num_bytes).digest()


def draw_pins() -> Pins:
    """Return the pins of a new answer."""
    return Pins(os.urandom(SECRET_BYTES), int(time.time()))
