"""Opens channels to servers: in the clear, by TLS, or as an operator to a role by certificates."""

import os
from pathlib import Path
from typing import Final

import grpc.aio

from pagewire.client.target import ServerTarget
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc import links
from pagewire_shared.rpc.options import public_channel_options

AUTHORITY_VARIABLE: Final = "PAGEWIRE_SERVER_CA"
"""File with the authorities of servers, in PEM, where no other is given."""


def open_channel(target: ServerTarget, ca_file: str | None = None) -> grpc.aio.Channel:
    """Return a channel to a server.

    Args:
        target: By TLS where it says so; else as links.use says for the links between roles.
        ca_file: Authorities of its certificate, in PEM; None for those of AUTHORITY_VARIABLE, or
            else those that grpcio brings along.

    Raises:
        InvalidRequestError: The file cannot be read.
    """
    options = public_channel_options()
    if not target.is_tls:
        return links.open_channel(target.address, None, options)
    credentials = grpc.ssl_channel_credentials(_authorities(ca_file))
    return grpc.aio.secure_channel(str(target.address), credentials, options=options)


def authority_file(ca_file: str | None = None) -> str | None:
    """Return the file with authorities that counts, or None for those of the system."""
    return ca_file or os.environ.get(AUTHORITY_VARIABLE) or None


def _authorities(ca_file: str | None) -> bytes | None:
    path = authority_file(ca_file)
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequestError(
            f"ca_file: {path} cannot be read: {error.strerror}", field="ca_file"
        ) from error
