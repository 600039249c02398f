"""Says who may read the metrics of a process, and gives its port TLS.

Health stays open beside them: orchestrators ask it without a certificate.
"""

import hashlib
import hmac
import logging
import os
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pagewire_shared.errors import StartupError
from pagewire_shared.security.instances import AllowedInstances
from pagewire_shared.security.roles import LinkRole, identity_of
from pagewire_shared.security.tls_files import TlsPaths, WatchedTlsFiles

_logger = logging.getLogger(__name__)
_MIN_TOKEN: Final = 16
_SCHEME: Final = "bearer "


class MetricsSettings(Protocol):
    """The settings of a process that this module reads."""

    @property
    def tls_dir(self) -> str | None: ...
    @property
    def metrics_tls(self) -> bool: ...
    @property
    def metrics_token_file(self) -> str: ...


class MetricsAccess:
    """Lets in who shows a token, or an operator's certificate.

    Raises:
        StartupError: The settings or their files cannot be used.
    """

    def __init__(self, settings: MetricsSettings) -> None:
        self._tokens = _Tokens(settings.metrics_token_file)
        self._tls: _MetricsTls | None = None
        if settings.metrics_tls:
            if settings.tls_dir is None:
                raise StartupError("--metrics-tls needs --tls-dir", field="metrics_tls")
            self._tls = _MetricsTls(Path(settings.tls_dir))

    @property
    def is_open(self) -> bool:
        """Whether everybody may read."""
        return self._tls is None and not self._tokens.is_on

    @property
    def context(self) -> ssl.SSLContext | None:
        """What connections are accepted with; None for plain HTTP."""
        return None if self._tls is None else self._tls.context

    def allows(self, authorization: str, peer: Any) -> bool:
        """Return whether a request may read.

        Args:
            authorization: Its header of that name, or empty.
            peer: The verified certificate as `ssl` shows it; None for none.
        """
        if self.is_open or (self._tls is not None and self._tls.is_operator(peer)):
            return True
        scheme, token = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :]
        return scheme.lower() == _SCHEME and self._tokens.has(token.strip())


class _MetricsTls:
    """The certificate of the role, followed as its files change.

    The context of a server that listens cannot be replaced, so its certificates are: for each
    handshake the present one is chosen. Authorities are added, and go with the process.
    """

    def __init__(self, folder: Path) -> None:
        self._watched = WatchedTlsFiles(TlsPaths.in_folder(folder))
        self._instances = AllowedInstances(folder)
        self.context = self._present = self._make()
        self._stamp = self._watched.stamp
        self.context.sni_callback = self._choose

    def is_operator(self, peer: Any) -> bool:
        """Return whether a certificate is that of an operator who may call."""
        names = [] if not peer else [value for _, value in peer.get("subjectAltName", ())]
        found = identity_of(name.encode() for name in names)
        return LinkRole.OPERATOR in found.roles and self._instances.allows(found)

    def _make(self) -> ssl.SSLContext:
        files, paths = self._watched.read(), self._watched.paths
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_cert_chain(paths.certificate, paths.key)
        context.load_verify_locations(cadata=files.authority.decode("ascii"))
        return context

    def _choose(self, handshake: ssl.SSLObject, _name: str | None, _of: ssl.SSLContext) -> None:
        stamp = self._watched.stamp
        if stamp != self._stamp:
            try:
                self._present, self._stamp = self._make(), stamp
                authority = self._watched.read().authority.decode("ascii")
                self.context.load_verify_locations(cadata=authority)
            except (ssl.SSLError, OSError) as error:
                # Files that are being replaced; the next connection looks again.
                _logger.warning("the certificate before is used for metrics: %s", error)
        handshake.context = self._present


class _Tokens:
    """The tokens in a file, read again when it changes; those before while it cannot be read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp = _stamp_of(path)
        self._digests = _read(path) if path else ()

    @property
    def is_on(self) -> bool:
        """Whether there is a file."""
        return bool(self._path)

    def has(self, token: str) -> bool:
        """Return whether a token is one of them."""
        if self._path and (found := _stamp_of(self._path)) not in (self._stamp, None):
            self._stamp = found
            try:
                self._digests = _read(self._path)
            except StartupError as error:
                _logger.warning("the tokens before are used: %s", error.message)
        digest = _digest(token)
        return any(hmac.compare_digest(digest, known) for known in self._digests)


def _stamp_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _read(path: str) -> Sequence[bytes]:
    try:
        lines = [line.partition("#")[0].strip() for line in Path(path).read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise StartupError(
            f"--metrics-token-file: cannot read {path}: {reason}", field="metrics_token_file"
        ) from error
    tokens = [line for line in lines if line]
    if not tokens or any(len(token) < _MIN_TOKEN or " " in token for token in tokens):
        raise StartupError(
            f"--metrics-token-file: {path} has to hold tokens of at least {_MIN_TOKEN} characters,"
            " a line each (`openssl rand -hex 32`)",
            field="metrics_token_file",
        )
    return tuple(map(_digest, tokens))
