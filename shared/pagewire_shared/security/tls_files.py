"""The folder with a role's certificate, and whether it has changed.

Its files have the names of a Kubernetes secret of type kubernetes.io/tls as cert-manager fills it.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagewire_shared.errors import StartupError

AUTHORITY: Final = "ca.crt"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_MAX_FILE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Contents of the folder, in PEM.

    Attributes:
        authority: Certificates of the authorities whose peers are believed.
        certificate: The role's own, and those between it and the authority.
        key: Its private key.
    """

    authority: bytes
    certificate: bytes
    key: bytes


def read_files(folder: Path) -> TlsFiles:
    """Return the files of a folder, checked: the key fits the certificate.

    Raises:
        StartupError: A file is missing, is too large, or is not in PEM.
    """
    found = TlsFiles(*(_read(folder / name) for name in (AUTHORITY, CERTIFICATE, KEY)))
    check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        check.load_cert_chain(folder / CERTIFICATE, folder / KEY, password=_no_password)
        check.load_verify_locations(cadata=found.authority.decode("ascii"))
    except (ssl.SSLError, ValueError, OSError, _EncryptedKeyError) as error:
        raise StartupError(
            f"--tls-dir: the files of {folder} are no certificate, its key and its authority in"
            f" PEM: {error}",
            field="tls_dir",
        ) from error
    return found


class _EncryptedKeyError(Exception):
    """A key with a password cannot be read without a person."""


def _no_password() -> str:
    raise _EncryptedKeyError("the key has a password")


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise StartupError(f"--tls-dir: {path} is too large", field="tls_dir")
        return path.read_bytes()
    except OSError as error:
        raise StartupError(
            f"--tls-dir: {path} cannot be read: {error.strerror}", field="tls_dir"
        ) from error


Stamp = tuple[tuple[int, int, int], ...]


def stamp_of(folder: Path) -> Stamp | None:
    """Return what changes with any of the files; None while one is missing.

    A secret of Kubernetes is a link that is moved, so links are followed.
    """
    try:
        found = [os.stat(folder / name) for name in (AUTHORITY, CERTIFICATE, KEY)]
    except OSError:
        return None
    return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)
