"""An authority that signs certificates of roles and of public ports, and nothing else.

X.509 (RFC 5280) with keys of NIST P-256, by the library `cryptography`. The authority's key stays
in its folder; roles get ca.crt, tls.crt and tls.key.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.process.extras import needs_extra
from pagewire_shared.security.roles import (
    LINK_HOST,
    LinkRole,
    instance_host,
    instance_uri,
    instances_in,
    is_instance_name,
)
from pagewire_shared.security.tls_files import AUTHORITY, CERTIFICATE, KEY

with needs_extra("certs"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_KEY: Final = "ca.key"
_EARLY: Final = datetime.timedelta(minutes=5)
"""Clocks of machines differ."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What `pagewire certs show` tells of a certificate.

    Attributes:
        hosts: Those of public ports.
        instance: That it is bound to; empty if it speaks for all of its role.
    """

    folder: str
    role: str
    name: str
    expires: datetime.datetime
    hosts: tuple[str, ...] = ()
    instance: str = ""

    def days_left(self, now: datetime.datetime) -> float:
        """Return the days until it expires; negative behind that."""
        return (self.expires - now).total_seconds() / 86400.0


class Authority:
    """The authority in a folder."""

    def __init__(self, certificate: "x509.Certificate", key: Any) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, folder: Path, cell: str, days: float) -> "Authority":
        """Make an authority. Raises StartupError if the folder has one, or cannot be written."""
        if (folder / AUTHORITY_KEY).exists():
            raise StartupError(f"{folder} has an authority already: {AUTHORITY_KEY}", field="DIR")
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Pagewire cell {cell}")])
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            _builder(name, name, key, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(folder / AUTHORITY_KEY, _key_bytes(key), is_secret=True)
            _write(folder / AUTHORITY, _pem(made))
        except OSError as error:
            raise StartupError(f"{folder} cannot be written: {error}", field="DIR") from error
        return cls(made, key)

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        """Return the authority of a folder. Raises StartupError."""
        try:
            certificate = x509.load_pem_x509_certificate((folder / AUTHORITY).read_bytes())
            key = serialization.load_pem_private_key((folder / AUTHORITY_KEY).read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise StartupError(
                f"{folder} has no authority ({AUTHORITY}, {AUTHORITY_KEY}): {error}; make one with"
                " `pagewire certs init`",
                field="DIR",
            ) from error
        return cls(certificate, key)

    def issue(
        self,
        folder: Path,
        role: LinkRole,
        *,
        cell: str,
        instance: str,
        days: float,
        is_bound: bool = False,
    ) -> None:
        """Write a new certificate of a role, its key and the authority's certificate.

        A process that uses the folder takes them with its next connections. One that is bound
        speaks for the instance alone. Raises StartupError.
        """
        if is_bound and not is_instance_name(instance):
            raise StartupError(
                f"--instance: {instance!r} is not 1 to 63 letters, digits and inner hyphens",
                field="instance",
            )
        hosts = [role.host, LINK_HOST, *([instance_host(role, instance)] if is_bound else [])]
        uri = x509.UniformResourceIdentifier(instance_uri(cell, role, instance))
        names = [*map(x509.DNSName, hosts), uri]
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        self._sign(folder, names, both, days)

    def issue_public(self, folder: Path, hosts: Sequence[str], *, days: float) -> None:
        """Write a new certificate of public ports: for names and IP addresses, and for no role.

        Raises StartupError.
        """
        names = [_general_name(host) for host in hosts]
        self._sign(folder, names, [ExtendedKeyUsageOID.SERVER_AUTH], days)

    def _sign(
        self,
        folder: Path,
        names: Sequence["x509.GeneralName"],
        usages: Sequence[Any],
        days: float,
    ) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(names[0].value)[:64])])
        made = (
            _builder(subject, self._certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(folder / AUTHORITY, _pem(self._certificate))
            _write(folder / KEY, _key_bytes(key), is_secret=True)
            _write(folder / CERTIFICATE, _pem(made))
        except OSError as error:
            raise StartupError(f"{folder} cannot be written: {error}", field="DIR") from error

    def has_signed(self, folder: Path) -> bool:
        """Return whether the certificate in a folder is by this authority."""
        try:
            found = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
            found.verify_directly_issued_by(self._certificate)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        return True


def facts_of(folder: Path) -> CertificateFacts:
    """Return the facts of the certificate in a folder. Raises StartupError."""
    try:
        found = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound) as error:
        raise StartupError(
            f"{folder} has no certificate of a role: {error}", field="DIR"
        ) from error
    hosts = set(names.get_values_for_type(x509.DNSName))
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    roles = sorted(role for role in LinkRole if role.host in hosts)
    addresses = sorted(str(one) for one in names.get_values_for_type(x509.IPAddress))
    return CertificateFacts(
        folder=str(folder),
        role=", ".join(roles),
        name=uris[0] if uris else "",
        expires=found.not_valid_after_utc,
        hosts=() if roles else (*sorted(hosts), *addresses),
        instance=next((one.partition("/")[2] for one in sorted(instances_in(hosts))), ""),
    )


def _general_name(host: str) -> "x509.GeneralName":
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: Any, issuer: Any, key: Any, days: float) -> "x509.CertificateBuilder":
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _pem(certificate: "x509.Certificate") -> bytes:
    data: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return data


def _key_bytes(key: Any) -> bytes:
    data: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return data


def _write(path: Path, data: bytes, *, is_secret: bool = False) -> None:
    """Replace a file at once: a reader finds the one before or this one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    if not is_secret:
        new.chmod(0o644)
    new.replace(path)
