"""Parses one API key with its name, rights and limits.

The key is plain text or its SHA-256: `team-a=KEY streams=8 requests-per-minute=60`.
"""

import hashlib
import re
from dataclasses import dataclass

from pagewire_shared.errors import StartupError

_HASH_PREFIX = "sha256:"
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,63})=(.*[^=].*)")
_KEY = re.compile(r"[\x21-\x7e]{1,1024}")


_ADMIN = "admin"
_LIMIT = re.compile(r"(streams|requests-per-minute|tokens-per-minute)=([1-9][0-9]{0,11})")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """Limits of one key; None for no limit of its own.

    Attributes:
        streams: Requests open at once; each prompt of a request counts.
        requests_per_minute: HTTP and gRPC calls that compute something.
        tokens_per_minute: Tokens of prompts and answers.
    """

    streams: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, stored as its digest only.

    Attributes:
        digest: SHA-256 of the key, 32 bytes.
        name: Owner of the key and tenant of its requests; None for a key without an owner.
        is_admin: Whether the key may administrate; only the word `admin` allows it.
    """

    digest: bytes
    name: str | None = None
    is_admin: bool = False
    limits: KeyLimits = KeyLimits()


def digest_of(key: str) -> bytes:
    """Return the SHA-256 of a key that a client has sent, also for invalid Unicode."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def parse_api_key(text: str, *, may_be_named: bool) -> ApiKey:
    """Parse `[NAME=]KEY` or `[NAME=]sha256:HEX`, followed by `admin` and limits after blanks.

    Raises:
        StartupError: The text has another form; the message does not show the key.
    """
    text, *options = text.split() or [""]
    is_admin, limits = _rights(options)
    named = _NAMED.fullmatch(text) if may_be_named else None
    name, rest = (named[1], named[2]) if named else (None, text)
    if rest.startswith(_HASH_PREFIX):
        digits = rest.removeprefix(_HASH_PREFIX)
        if not _HASH.fullmatch(digits):
            raise StartupError(f"{_HASH_PREFIX} takes 64 hexadecimal digits")
        return ApiKey(bytes.fromhex(digits), name, is_admin, limits)
    if not _KEY.fullmatch(rest):
        raise StartupError("a key is 1 to 1024 printable ASCII characters without blanks")
    return ApiKey(digest_of(rest), name, is_admin, limits)


def _rights(options: list[str]) -> tuple[bool, KeyLimits]:
    """Parse the words after a key. The StartupError does not show a wrong word, because it may be a
    part of a key."""
    values: dict[str, int] = {}
    for number, option in enumerate(options, 1):
        limit = _LIMIT.fullmatch(option)
        name = limit[1].replace("-", "_") if limit else option
        if (limit is None and option != _ADMIN) or name in values:
            raise StartupError(
                f"word {number} behind a key: once each of admin, streams=N,"
                " requests-per-minute=N and tokens-per-minute=N is known, N at least 1"
            )
        values[name] = int(limit[2]) if limit else 1
    is_admin = values.pop(_ADMIN, 0) > 0
    return is_admin, KeyLimits(**values)


def hidden_key(text: str) -> str:
    """Return a key given in a flag as sha256:HEX, with the words after it. Raises StartupError."""
    digest = parse_api_key(text, may_be_named=False).digest.hex()
    return " ".join([_HASH_PREFIX + digest, *text.split()[1:]])
