"""Reads what a process has to know of its own certificate: its names, and when it ends.

X.509 in DER (RFC 5280, X.690). The roles need no library for certificates, and Python's `ssl` shows
only those of peers.
"""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pagewire_shared.security.roles import instances_in

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_SEQUENCE, _OCTETS, _UTC_TIME, _TIME = 0x30, 0x04, 0x17, 0x18
_EXTENSIONS, _DNS_NAME = 0xA3, 0x82
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
"""OID 2.5.29.17."""


@dataclass(frozen=True, slots=True)
class CertificateText:
    """What a certificate says.

    Attributes:
        ends: When it expires, in seconds since 1970.
        dns_names: Its alternative names that are DNS names.
    """

    ends: float
    dns_names: frozenset[str]

    @property
    def instances(self) -> frozenset[str]:
        """ROLE/INSTANCE that it is bound to."""
        return instances_in(self.dns_names)


def read_certificate(pem: bytes) -> CertificateText:
    """Return what the first certificate of a file says. Raises ValueError for other bytes."""
    text = pem.decode("ascii", errors="replace")
    begin = text.find(_BEGIN)
    end = text.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate in PEM")
    data = memoryview(ssl.PEM_cert_to_DER_cert(text[begin : end + len(_END)]))
    (_, whole), *_ = _parts(data)
    (_, signed), *_ = _parts(whole)
    fields = list(_parts(signed))
    sequences = [content for tag, content in fields if tag == _SEQUENCE]
    if len(sequences) < 3:
        raise ValueError("a certificate without a validity")
    # Algorithm, issuer, validity: the number before them, and the version, are no sequences.
    _, ends = _parts(sequences[2])
    names = frozenset(_dns_names([content for tag, content in fields if tag == _EXTENSIONS]))
    return CertificateText(_seconds(*ends), names)


def _parts(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield tag and content of what follows one another in `data`."""
    position = 0
    while position < len(data):
        if len(data) - position < 2:
            raise ValueError("a cut certificate")
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count])
            position += count
        if length > len(data) - position:
            raise ValueError("a cut certificate")
        yield tag, data[position : position + length]
        position += length


def _dns_names(wrapped: list[memoryview]) -> Iterator[str]:
    for whole in wrapped:
        for _, extensions in _parts(whole):
            for _, extension in _parts(extensions):
                (_, oid), *_, (tag, value) = _parts(extension)
                if bytes(oid) != _ALTERNATIVE_NAMES or tag != _OCTETS:
                    continue
                (_, names), *_ = _parts(value)
                yield from (bytes(one).decode() for kind, one in _parts(names) if kind == _DNS_NAME)


def _seconds(tag: int, content: memoryview) -> float:
    text = bytes(content).decode("ascii")
    if tag == _UTC_TIME:
        # Two digits of a year: 1950 to 2049.
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    elif tag != _TIME:
        raise ValueError("a certificate whose end is no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
