"""Parses where a server is: host:port, unix:path or a URL. `https` means TLS, of gRPC, too."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc.address import Address, parse_address

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """An address, and whether TLS is spoken there."""

    address: Address
    is_tls: bool = False

    def __str__(self) -> str:
        return f"https://{self.address}" if self.is_tls else str(self.address)

    def with_port(self, port: int) -> "ServerTarget":
        """Return another port of the same server."""
        return ServerTarget(Address(self.address.host, port), self.is_tls)


def parse_target(text: str, setting: str) -> ServerTarget:
    """Return the server in "host:port", "unix:path" or a URL.

    Raises:
        InvalidRequestError: The text has another form; names `setting`.
    """
    if "://" not in text:
        return ServerTarget(parse_address(text, setting=setting))
    parts = urlsplit(text)
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or port is None:
        raise InvalidRequestError(
            f"{setting}: {text!r} is not host:port, unix:path or a URL", field=setting
        )
    return ServerTarget(Address(parts.hostname, port), parts.scheme == "https")
