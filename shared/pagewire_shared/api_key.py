"""One API key as it is written down: in the clear or as its SHA-256, with a name or without."""

import hashlib
import re
from dataclasses import dataclass

from pagewire_shared.errors import StartupError

_HASH_PREFIX = "sha256:"
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})=(.*[^=].*)")
_KEY = re.compile(r"[\x21-\x7e]{1,1024}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key that is known by its digest only.

    Attributes:
        digest: SHA-256 of the key, 32 bytes.
        name: Whose it is, the tenant of its requests; None for nobody's.
    """

    digest: bytes
    name: str | None = None


def digest_of(key: str) -> bytes:
    """Return the SHA-256 of a key that a client has sent; any text has one."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def parse_api_key(text: str, *, may_be_named: bool) -> ApiKey:
    """Return the key that `text` writes: KEY or sha256:HEX, after NAME= where it may be named.

    Raises:
        StartupError: It is neither; the message does not show the key.
    """
    named = _NAMED.fullmatch(text) if may_be_named else None
    name, rest = (named[1], named[2]) if named else (None, text)
    if rest.startswith(_HASH_PREFIX):
        digits = rest.removeprefix(_HASH_PREFIX)
        if not _HASH.fullmatch(digits):
            raise StartupError(f"{_HASH_PREFIX} takes 64 hexadecimal digits")
        return ApiKey(bytes.fromhex(digits), name)
    if not _KEY.fullmatch(rest):
        raise StartupError("a key is 1 to 1024 printable ASCII characters without blanks")
    return ApiKey(digest_of(rest), name)


def hidden_key(text: str) -> str:
    """Return a key given in a flag as sha256:HEX, which is what is kept. Raises StartupError."""
    return _HASH_PREFIX + parse_api_key(text, may_be_named=False).digest.hex()
