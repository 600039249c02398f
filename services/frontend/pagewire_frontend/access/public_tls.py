"""TLS of the public ports: one certificate for HTTP and gRPC, read again when its files change."""

import logging
import ssl
from pathlib import Path
from typing import Final, Protocol

import grpc

from pagewire_shared.rpc.links import NO_GUARD, ServerGuard, following_credentials
from pagewire_shared.security.expiry import show_end
from pagewire_shared.security.tls_files import TlsPaths, WatchedTlsFiles

_logger = logging.getLogger(__name__)
_ALPN: Final = ("http/1.1",)


class PublicTlsSettings(Protocol):
    """The flags, with vLLM's names and numbers; empty texts for none."""

    @property
    def ssl_certfile(self) -> str: ...
    @property
    def ssl_keyfile(self) -> str: ...
    @property
    def ssl_ca_certs(self) -> str: ...
    @property
    def ssl_cert_reqs(self) -> int: ...


class PublicTls:
    """The certificate. Raises StartupError, as WatchedTlsFiles does, where it cannot be used."""

    def __init__(self, settings: PublicTlsSettings) -> None:
        self._watched = WatchedTlsFiles(
            TlsPaths(
                certificate=Path(settings.ssl_certfile),
                key=Path(settings.ssl_keyfile or settings.ssl_certfile),
                authority=Path(settings.ssl_ca_certs) if settings.ssl_ca_certs else None,
                setting="--ssl-certfile",
            )
        )
        show_end(self._watched)
        self._reqs = ssl.VerifyMode(settings.ssl_cert_reqs)
        self._context, self._stamp = self._make(), self._watched.stamp

    def context(self) -> ssl.SSLContext:
        """Return what a new connection of HTTP is accepted with."""
        stamp = self._watched.stamp
        if stamp != self._stamp:
            try:
                self._context, self._stamp = self._make(), stamp
            except (ssl.SSLError, OSError) as error:
                # Files that are being replaced; the next connection looks again.
                _logger.warning("the certificate before is used: %s", error)
        return self._context

    def credentials(self) -> grpc.ServerCredentials:
        """Return what gRPC listens with, which asks clients for certificates always or never."""
        return following_credentials(self._watched, asks_clients=self._reqs is ssl.CERT_REQUIRED)

    def _make(self) -> ssl.SSLContext:
        files, paths = self._watched.read(), self._watched.paths
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(paths.certificate, paths.key)
        context.verify_mode = self._reqs
        if files.authority:
            context.load_verify_locations(cadata=files.authority.decode("ascii"))
        context.set_alpn_protocols(list(_ALPN))
        return context


def public_tls(settings: PublicTlsSettings) -> PublicTls | None:
    """Return the TLS of the public ports, or None without a certificate. Raises StartupError."""
    return PublicTls(settings) if settings.ssl_certfile else None


def public_guard(tls: PublicTls | None) -> ServerGuard:
    """Return how clients speak to the gRPC port."""
    return NO_GUARD if tls is None else ServerGuard(credentials=tls.credentials())
