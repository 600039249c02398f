"""Idempotency keys: which stream answers the request of a key. Knows keys, and no streams."""

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson
from fastapi import Request

from pagewire_frontend.request_label import IDEMPOTENCY_KEY
from pagewire_shared.errors import InvalidRequestError

MAX_KEY_BYTES: Final = 255
MAX_KEYS: Final = 16384
"""Keys that a process holds for its group, those of ended streams included. A tenant has half of
them at most; then its oldest is forgotten."""


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The stream of a key, and the digest of its request."""

    stream_id: str
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyClaim:
    """A request that wants to be the one of its key.

    Attributes:
        tenant: Its tenant; the key of another is another key.
        holder: What it would have the key stand for.
        instead_of: A stream that was found to be gone; the key may be taken from it.
    """

    tenant: str | None
    key: str
    holder: KeyHolder
    instead_of: str | None = None


class KeyDirectory(Protocol):
    """The keys of a group."""

    async def claim(self, claim: KeyClaim) -> KeyHolder:
        """Return what the key stands for from now on: the claim's, if it had no other."""
        ...


class LocalKeys:
    """A KeyDirectory of the keys that this process holds for its group.

    What it says may be of a stream that is gone: a claim then names that stream.
    """

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._tenants: dict[str | None, OrderedDict[str, KeyHolder]] = {}

    async def claim(self, claim: KeyClaim) -> KeyHolder:
        """Return what the key stands for from now on; see KeyDirectory."""
        keys = self._tenants.setdefault(claim.tenant, OrderedDict())
        held = keys.get(claim.key)
        if held is None or held.stream_id == claim.instead_of:
            held = keys[claim.key] = claim.holder
        keys.move_to_end(claim.key)
        self._forget_oldest(claim.tenant)
        return held

    def claims(self) -> list[KeyClaim]:
        """Return all keys as the claims that would give them, of each tenant the oldest first."""
        return [
            KeyClaim(tenant=tenant, key=key, holder=holder)
            for tenant, keys in self._tenants.items()
            for key, holder in keys.items()
        ]

    def _forget_oldest(self, tenant: str | None) -> None:
        if len(self._tenants[tenant]) > self._max_keys // 2:
            self._tenants[tenant].popitem(last=False)
        if sum(map(len, self._tenants.values())) > self._max_keys:
            largest = max(self._tenants, key=lambda one: len(self._tenants[one]))
            self._tenants[largest].popitem(last=False)
            if not self._tenants[largest]:
                del self._tenants[largest]


def key_of(request: Request, *, keeps_any: bool) -> str | None:
    """Return the key of a request; None without one.

    Raises:
        InvalidRequestError: The key is empty or too long, or this server keeps no streams.
    """
    # The server reads headers as Latin-1: a character is a byte.
    key = request.headers.get(IDEMPOTENCY_KEY)
    return None if key is None else checked_key(key, keeps_any=keeps_any)


def checked_key(key: str, *, keeps_any: bool) -> str:
    """Return a key whose characters are bytes; see key_of. Raises InvalidRequestError."""
    if not 1 <= len(key) <= MAX_KEY_BYTES:
        reason = f"must have 1 to {MAX_KEY_BYTES} bytes, got {len(key)}"
    elif not keeps_any:
        reason = "this server keeps no answers: --stream-retention-seconds is 0"
    else:
        return key
    raise InvalidRequestError(f"{IDEMPOTENCY_KEY}: {reason}", field=IDEMPOTENCY_KEY)


def digest_of(path: str, body: dict[str, Any]) -> bytes:
    """Return the digest of a request: of its path and its JSON, in whatever order its names are."""
    try:
        canonical = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # It has a whole number beyond 64 bits, or is nested deeply.
        canonical = json.dumps(body, sort_keys=True).encode()
    return hashlib.blake2b(path.encode() + b"\n" + canonical, digest_size=32).digest()
