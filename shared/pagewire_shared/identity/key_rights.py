"""Parses what an API key may do: the words behind it in a flag or a file."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.process.sizes import parse_size

_LIMIT = re.compile(r"[1-9][0-9]{0,11}")
_MAX_MODELS: Final = 256
_MOST_BYTES: Final = 2**63 - 1
"""Messages to schedulers have numbers of 64 bits."""
_KNOWN: Final = (
    "admin, scope=NAME, model=NAME, expires=DATE, streams=N, requests-per-minute=N,"
    " tokens-per-minute=N and cache-bytes=SIZE are known; all but scope and model stand once"
)


class KeyScope(StrEnum):
    """Kinds of calls that a key may make."""

    GENERATE = "generate"
    EMBED = "embed"
    METRICS = "metrics"
    ADAPTERS = "adapters"
    ADMIN = "admin"


ALL_SCOPES: Final = frozenset(KeyScope)
DEFAULT_SCOPES: Final = frozenset({KeyScope.GENERATE, KeyScope.EMBED})
"""Scopes of a key without words about them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLimits:
    """Limits of one key; None for no limit of its own.

    Attributes:
        streams: Requests open at once; each prompt of a request counts.
        requests_per_minute: HTTP and gRPC calls that compute something.
        tokens_per_minute: Tokens of prompts and answers.
        cache_bytes: What is kept in the cache of each worker for later requests.
    """

    streams: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRights:
    """What one key may do.

    Attributes:
        scopes: Kinds of calls.
        models: Names of the models and adapters that it may use; None for all.
        expires_at: When it ends, in seconds since 1970; None for never.
        limits: How much it may use.
    """

    scopes: frozenset[KeyScope] = DEFAULT_SCOPES
    models: frozenset[str] | None = None
    expires_at: float | None = None
    limits: KeyLimits = field(default_factory=KeyLimits)


DEFAULT_RIGHTS: Final = KeyRights()


def parse_rights(words: list[str]) -> KeyRights:
    """Return the rights that the words behind a key give.

    Raises:
        StartupError: A word is not known, stands twice, or has no such value. The message does not
            show the word, because it may be a part of a key.
    """
    values: dict[str, list[Any]] = {}
    for number, word in enumerate(words, 1):
        name, _, text = word.partition("=")
        found = values.setdefault(name, [])
        if (
            name not in _PARSERS
            or ("=" in word) is (name == KeyScope.ADMIN)
            or (found and name not in _REPEATED)
        ):
            raise StartupError(f"word {number} behind a key: {_KNOWN}")
        try:
            found.append(_PARSERS[name](text))
        except ValueError as error:
            raise StartupError(f"word {number} behind a key: {name} takes {error}") from error
    if KeyScope.ADMIN in values and "scope" in values:
        raise StartupError("behind a key: admin is all scopes; give it or scope=, not both")
    if len(values.get("model", ())) > _MAX_MODELS:
        raise StartupError(f"behind a key: at most {_MAX_MODELS} models")
    default = ALL_SCOPES if KeyScope.ADMIN in values else DEFAULT_SCOPES
    limits = {name.replace("-", "_"): values[name][0] for name in _LIMITS if name in values}
    return KeyRights(
        scopes=frozenset(values["scope"]) if "scope" in values else default,
        models=frozenset(values["model"]) if "model" in values else None,
        expires_at=values["expires"][0] if "expires" in values else None,
        limits=KeyLimits(**limits),
    )


def _scope(text: str) -> KeyScope:
    try:
        return KeyScope(text)
    except ValueError:
        raise ValueError(f"one of {', '.join(KeyScope)}") from None


def _model(text: str) -> str:
    if not text:
        raise ValueError("the name of a model or of an adapter")
    return text


def _expiry(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("a date or a time, such as 2030-01-31 or 2030-01-31T12:00Z") from None
    # Without a zone it is UTC, wherever the server runs.
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _limit(text: str) -> int:
    if not _LIMIT.fullmatch(text):
        raise ValueError("a whole number, at least 1")
    return int(text)


def _size(text: str) -> int:
    try:
        num_bytes = parse_size(text)
    except StartupError:
        raise ValueError("a size, such as 512MiB or 4GiB") from None
    if num_bytes > _MOST_BYTES:
        raise ValueError(f"a size of at most {_MOST_BYTES} bytes")
    return num_bytes


_COUNTS: Final = ("streams", "requests-per-minute", "tokens-per-minute")
_LIMITS: Final = (*_COUNTS, "cache-bytes")
_REPEATED: Final = ("scope", "model")
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    KeyScope.ADMIN.value: lambda _: True,
    "scope": _scope,
    "model": _model,
    "expires": _expiry,
    **dict.fromkeys(_COUNTS, _limit),
    "cache-bytes": _size,
}
