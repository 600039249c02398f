"""Files of certificates, and whether they have changed.

The files of a role's folder have the names of a Kubernetes secret of type kubernetes.io/tls as
cert-manager fills it.
"""

import logging
import os
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pagewire_shared.errors import StartupError
from pagewire_shared.security import audit
from pagewire_shared.security.certificate import CertificateText, read_certificate

_logger = logging.getLogger(__name__)

AUTHORITY: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_MAX_FILE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Contents of the files, in PEM.

    Attributes:
        authority: Certificates of the authorities whose peers are believed; may be empty.
        certificate: The own one, and those between it and the authority.
        key: Its private key.
        text: What the certificate says.
    """

    authority: bytes
    certificate: bytes
    key: bytes
    text: CertificateText


@dataclass(frozen=True, slots=True)
class TlsPaths:
    """Where the files are.

    Attributes:
        certificate, key: The own ones.
        authority: Certificates of the authorities whose peers are believed; None for no peers with
            certificates.
        setting: Flag that an error names.
    """

    certificate: Path
    key: Path
    authority: Path | None
    setting: str

    @classmethod
    def in_folder(cls, folder: Path) -> Self:
        """Return the paths of a role's folder."""
        return cls(folder / CERTIFICATE, folder / KEY, folder / AUTHORITY, "--tls-dir")

    @property
    def all(self) -> tuple[Path, ...]:
        """All paths."""
        return (self.certificate, self.key, *(() if self.authority is None else (self.authority,)))


def read_files(paths: TlsPaths) -> TlsFiles:
    """Return the files, checked: the key fits the certificate.

    Raises:
        StartupError: A file is missing, is too large, or is not in PEM.
    """
    certificate, key, *authority = (_read(path, paths.setting) for path in paths.all)
    check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        check.load_cert_chain(paths.certificate, paths.key, password=_no_password)
        if authority:
            check.load_verify_locations(cadata=authority[0].decode("ascii"))
        text = read_certificate(certificate)
    except (ssl.SSLError, ValueError, OSError, _EncryptedKeyError) as error:
        names = ", ".join(str(path) for path in paths.all)
        raise StartupError(
            f"{paths.setting}: {names} are no certificate, its key and its authority in PEM:"
            f" {error}",
            field=_field(paths.setting),
        ) from error
    return TlsFiles(authority[0] if authority else b"", certificate, key, text)


class _EncryptedKeyError(Exception):
    """A key with a password cannot be read without a person."""


def _no_password() -> str:
    raise _EncryptedKeyError("the key has a password")


def _read(path: Path, setting: str) -> bytes:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise StartupError(f"{setting}: {path} is too large", field=_field(setting))
        return path.read_bytes()
    except OSError as error:
        raise StartupError(
            f"{setting}: {path} cannot be read: {error.strerror}", field=_field(setting)
        ) from error


def _field(setting: str) -> str:
    return setting.removeprefix("--").replace("-", "_")


Stamp = tuple[tuple[int, int, int], ...]


def stamp_of(paths: TlsPaths) -> Stamp | None:
    """Return what changes with any of the files; None while one is missing.

    A secret of Kubernetes is a link that is moved, so links are followed.
    """
    try:
        found = [os.stat(path) for path in paths.all]
    except OSError:
        return None
    return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)


class WatchedTlsFiles:
    """Files that are read again when they change.

    Raises:
        StartupError: They cannot be used at first.
    """

    def __init__(self, paths: TlsPaths) -> None:
        self.paths = paths
        self._lock = threading.Lock()  # handshakes of gRPC's servers come in threads of its own
        self._stamp = stamp_of(paths)
        self._files = read_files(paths)

    @property
    def stamp(self) -> Stamp | None:
        """What changes with the files in use."""
        self.read()
        return self._stamp

    def read(self) -> TlsFiles:
        """Return the present files; the ones before while new ones cannot be used."""
        with self._lock:
            found = stamp_of(self.paths)
            if found is not None and found != self._stamp:
                try:
                    self._files = read_files(self.paths)
                except StartupError as error:
                    _logger.warning("the certificate before is used: %s", error.message)
                    audit.note("certificate_unusable", reason=error.message)
                else:
                    _logger.info("a new certificate is used: %s", self.paths.certificate)
                    audit.note("certificate_changed", path=str(self.paths.certificate))
                self._stamp = found
            return self._files
