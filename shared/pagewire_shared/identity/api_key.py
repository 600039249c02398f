"""Parses one API key with its name and rights.

The key is plain text or a digest: `team-a=KEY streams=8 requests-per-minute=60`.
"""

import hashlib
import re
from dataclasses import dataclass

from pagewire_shared.errors import StartupError
from pagewire_shared.identity import salted_key
from pagewire_shared.identity.key_rights import (
    DEFAULT_RIGHTS,
    KeyRights,
    KeyScope,
    parse_rights,
)
from pagewire_shared.identity.salted_key import SaltedKey

_HASH_PREFIX = "sha256:"
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})=(.*[^=].*)")
_KEY = re.compile(r"[\x21-\x7e]{1,1024}")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, stored as a digest only.

    Attributes:
        digest: SHA-256 of the key, 32 bytes; of a salted one, that of its salted digest.
        name: Owner of the key and tenant of its requests; None for a key without an owner.
        rights: What it may do.
        salted: Digest by which the key is recognised, if it is salted.
    """

    digest: bytes
    name: str | None = None
    rights: KeyRights = DEFAULT_RIGHTS
    salted: SaltedKey | None = None

    @property
    def is_admin(self) -> bool:
        """Whether the key may administrate."""
        return KeyScope.ADMIN in self.rights.scopes


def digest_of(key: str) -> bytes:
    """Return the SHA-256 of a key that a client has sent, also for invalid Unicode."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def parse_api_key(text: str, *, may_be_named: bool) -> ApiKey:
    """Parse `[NAME=]KEY`, `[NAME=]sha256:HEX` or `[NAME=]scrypt:...`, and the words behind it.

    Raises:
        StartupError: The text has another form; the message does not show the key.
    """
    text, *words = text.split() or [""]
    rights = parse_rights(words)
    named = _NAMED.fullmatch(text) if may_be_named else None
    name, rest = (named[1], named[2]) if named else (None, text)
    if rest.startswith(_HASH_PREFIX):
        digits = rest.removeprefix(_HASH_PREFIX)
        if not _HASH.fullmatch(digits):
            raise StartupError(f"{_HASH_PREFIX} takes 64 hexadecimal digits")
        return ApiKey(bytes.fromhex(digits), name, rights)
    if rest.startswith(salted_key.PREFIX):
        return ApiKey(digest_of(rest), name, rights, salted_key.parse_salted(rest))
    if not _KEY.fullmatch(rest):
        raise StartupError("a key is 1 to 1024 printable ASCII characters without blanks")
    return ApiKey(digest_of(rest), name, rights)


def hidden_key(text: str) -> str:
    """Return a key given in a flag as a digest, with the words after it. Raises StartupError."""
    key = parse_api_key(text, may_be_named=False)
    shown = str(key.salted) if key.salted else _HASH_PREFIX + key.digest.hex()
    return " ".join([shown, *text.split()[1:]])
