"""Salted digests of API keys, by scrypt (RFC 7914).

`scrypt:BEGINNING:SALT:DIGEST` has the first characters of the key in the clear, so that one wrong
key costs one digest at most, and not one for each line of a file.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import StartupError

PREFIX: Final = "scrypt:"
_NUM_SHOWN: Final = 8
MIN_CHARS: Final = 24
"""Shortest key that is salted: what is not shown of it has to be long enough."""

_FORM = re.compile(
    rf"scrypt:([\x21-\x39\x3b-\x7e]{{{_NUM_SHOWN}}}):([0-9a-f]{{32}}):([0-9a-f]{{64}})"
)
# 16 MiB and some 40 ms of one core for each digest.
_COST: Final = {"n": 2**14, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024, "dklen": 32}


@dataclass(frozen=True, slots=True)
class SaltedKey:
    """A salted digest.

    Attributes:
        beginning: First characters of the key.
        salt: 16 bytes.
        digest: 32 bytes.
    """

    beginning: str
    salt: bytes
    digest: bytes

    def __str__(self) -> str:
        return f"{PREFIX}{self.beginning}:{self.salt.hex()}:{self.digest.hex()}"

    def is_of(self, key: str) -> bool:
        """Return whether this is the digest of a key. Takes time, without the interpreter lock."""
        if not key.startswith(self.beginning):
            return False
        return hmac.compare_digest(_digest(key, self.salt), self.digest)


def salted(key: str) -> SaltedKey:
    """Return a key's digest with a new salt. Raises StartupError for a key that is too short."""
    if len(key) < MIN_CHARS or ":" in key[:_NUM_SHOWN]:
        raise StartupError(
            f"a salted key has at least {MIN_CHARS} characters, and no colon among its first"
            f" {_NUM_SHOWN}"
        )
    salt = secrets.token_bytes(16)
    return SaltedKey(key[:_NUM_SHOWN], salt, _digest(key, salt))


def parse_salted(text: str) -> SaltedKey:
    """Return the digest that a text is. Raises StartupError."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise StartupError(
            f"{PREFIX} takes the first {_NUM_SHOWN} characters of the key, 32 and 64 hexadecimal"
            " digits, with colons between; `pagewire keys new` makes one"
        )
    return SaltedKey(found[1], bytes.fromhex(found[2]), bytes.fromhex(found[3]))


def _digest(key: str, salt: bytes) -> bytes:
    return hashlib.scrypt(key.encode("utf-8", "surrogateescape"), salt=salt, **_COST)
