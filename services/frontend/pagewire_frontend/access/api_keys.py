"""The API keys of a frontend, and the caller of the request being served. One check for HTTP and
gRPC; holds no key in the clear and logs none."""

import contextlib
import hmac
import logging
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from pagewire_frontend.access.key_usage import KeyUsage, KeyUsages, Ticket
from pagewire_frontend.access.salted_keys import SaltedKeys
from pagewire_frontend.access.scopes import require_scope
from pagewire_shared.errors import AuthenticationError, ForbiddenError, StartupError
from pagewire_shared.identity.api_key import ApiKey, digest_of, parse_api_key
from pagewire_shared.identity.key_rights import KeyScope
from pagewire_shared.security import audit

_logger = logging.getLogger(__name__)

_RECHECK_SECONDS = 1.0
_SCHEME = "bearer"


@dataclass(frozen=True, slots=True)
class Caller:
    """The key of a request, its usage, and the tenant of what it asks for.

    Attributes:
        tenant: None for the tenant that the request names, or the default one.
    """

    key: ApiKey
    usage: KeyUsage
    tenant: str | None

    @property
    def label(self) -> str:
        """Name of the key in logs, else the beginning of its digest."""
        return self.key.name or f"sha256:{self.key.digest.hex()[:8]}"

    def require(self, scope: KeyScope | None) -> None:
        """Raise ForbiddenError unless the key has a scope; None is that of every key."""
        require_scope(self.key.rights.scopes, scope)


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""Caller of the request that this task serves; None where no key is needed."""


class ApiKeys:
    """The keys from flags, and from a file that is read again when it changes."""

    def __init__(
        self,
        keys: Sequence[str] = (),
        file: Path | None = None,
        *,
        usages: KeyUsages | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Raise StartupError where a key is malformed or the file cannot be read."""
        self._given = [parse_api_key(text, may_be_named=False) for text in keys]
        self._file = file
        self._clock = clock
        self._time = wall_clock
        self._salted = SaltedKeys()
        self._stamp = _stamp(file)
        self._read = _read_file(file) if file is not None else []
        self._checked_at = clock()
        self._usages = usages or KeyUsages(1)
        self._usages.set_keys(self._all())
        self._cache_bounds: dict[str | None, int | None] | None = None

    @property
    def are_required(self) -> bool:
        """Whether a caller needs a key: with a file also while it is empty."""
        return bool(self._given) or self._file is not None

    async def check(self, authorization: str | None) -> Caller | None:
        """Return the caller, or None when no key is needed.

        Args:
            authorization: The header or metadata of that name: "Bearer KEY".

        Raises:
            AuthenticationError: No key, or one that is not known or has expired.
            OverloadedError: Too many keys that were not seen before are compared at a time.
        """
        if not self.are_required:
            return None
        scheme, _, key = (authorization or "").strip().partition(" ")
        if scheme.lower() != _SCHEME or not key.strip():
            raise AuthenticationError("an API key is required: Authorization: Bearer KEY")
        self._read_again()
        found = self._known(key.strip()) or await self._salted.find(key.strip(), self._all())
        if found is None:
            raise AuthenticationError("the API key is not valid")
        expires_at = found.rights.expires_at
        if expires_at is not None and self._time() >= expires_at:
            raise AuthenticationError("the API key has expired")
        return Caller(found, self._usages.of(found), self._tenant_of(found))

    def caller_of(self, digest: bytes | None) -> Caller | None:
        """Return the caller with the key of this digest, for a request that it has made before at
        another frontend; None without a digest.

        Raises:
            AuthenticationError: There is no such key any more.
        """
        if digest is None:
            return None
        self._read_again()
        found = next((one for one in self._all() if one.digest == digest), None)
        if found is None:
            raise AuthenticationError("the API key of this stream is not valid any more")
        return Caller(found, self._usages.of(found), self._tenant_of(found))

    def cache_bytes_of(self, tenant: str | None) -> int | None:
        """Return the bytes that a tenant may keep in the cache of each worker: the most that one of
        its keys allows; None if one has no bound, or no key is of this tenant."""
        self._read_again()
        bounds = self._cache_bounds
        if bounds is None:
            bounds = self._cache_bounds = self._find_cache_bounds()
        return bounds.get(tenant)

    def _find_cache_bounds(self) -> dict[str | None, int | None]:
        bounds: dict[str | None, int | None] = {}
        for key in self._all():
            tenant, own = self._tenant_of(key), key.rights.limits.cache_bytes
            known = bounds.get(tenant, own)
            bounds[tenant] = None if own is None or known is None else max(own, known)
        return bounds

    def _tenant_of(self, key: ApiKey) -> str | None:
        """Return the tenant of a key. Keys without a name are tenants of their own, where there are
        several; an operator's may name any tenant, as the only key may."""
        if key.name is not None:
            return key.name
        is_only = all(one.digest == key.digest for one in self._all())
        return None if is_only or key.is_admin else f"key-{key.digest.hex()[:16]}"

    def _known(self, key: str) -> ApiKey | None:
        digest = digest_of(key)
        # All keys are compared, so that the time does not depend on the matching key.
        found = [
            one
            for one in self._all()
            if one.salted is None and hmac.compare_digest(one.digest, digest)
        ]
        return found[0] if found else None

    def _all(self) -> list[ApiKey]:
        # A named one first: a key given in a flag, too, still has its name.
        return [*self._read, *self._given]

    def _read_again(self) -> None:
        now = self._clock()
        if self._file is None or now - self._checked_at < _RECHECK_SECONDS:
            return
        self._checked_at = now
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._read = _read_file(self._file)
        except StartupError as error:
            _logger.error("%s; the keys read before stay valid", error)
            audit.note("keys_unreadable", reason=error.message)
        else:
            self._usages.set_keys(self._all())
            self._cache_bounds = None
            _logger.info("read %d API keys from %s", len(self._read), self._file)
            audit.note("keys_changed", path=str(self._file), num_keys=len(self._read))


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """Return a stamp that differs after a change; None for a file that is not there."""
    with contextlib.suppress(OSError):
        if file is not None:
            found = file.stat()
            return found.st_mtime_ns, found.st_size, found.st_ino
    return None


def _read_file(file: Path) -> list[ApiKey]:
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise StartupError(f"--api-key-file: cannot read {file}: {reason}") from error
    keys = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            keys.append(parse_api_key(text, may_be_named=True))
        except StartupError as error:
            raise StartupError(f"--api-key-file: {file}:{number}: {error}") from error
    return keys


def set_caller(caller: Caller | None) -> None:
    """Set the caller of the request that this task serves from now on."""
    _caller.set(caller)


def current_caller() -> Caller | None:
    """Return the caller of the request that this task serves; None where no key is needed."""
    return _caller.get()


def current_tenant() -> str | None:
    """Return the tenant of the request that this task serves; None where its key has none."""
    caller = _caller.get()
    return caller.tenant if caller is not None else None


def take_ticket() -> Ticket:
    """Count a request that is opened for the caller. Raises OverloadedError beyond its limits."""
    caller = _caller.get()
    return caller.usage.open_stream() if caller is not None else Ticket()


def tenant_of(asked: str | None) -> str | None:
    """Return the tenant of a request that names one itself, which its key decides.

    Raises:
        ForbiddenError: The key is another tenant's.
    """
    name = current_tenant()
    if name is None:
        return asked
    if asked not in (None, name):
        raise ForbiddenError(f"tenant: this API key is for {name!r}", field="tenant")
    return name


def may_use_model(name: str, base: str | None) -> bool:
    """Return whether the key of the request that this task serves may use a model.

    Args:
        name: Name in the request, of a model or an adapter.
        base: For a model its first name; None for an adapter.
    """
    caller = _caller.get()
    if caller is None or caller.key.rights.models is None:
        return True
    return name in caller.key.rights.models or base in caller.key.rights.models
