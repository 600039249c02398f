"""Finds the port that a command needs, from a URL or from either port of a server.

A short probe asks what speaks at an address: HTTP, or else gRPC. The frontend says its gRPC port at
/version.
"""

import json
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from pagewire.client.channel import authority_file
from pagewire.client.target import ServerTarget, parse_target
from pagewire_shared.errors import UnavailableError
from pagewire_shared.rpc.address import Address

PROBE_SECONDS: Final = 3.0
_PROTOCOLS: Final = ["http/1.1", "h2"]
_MAX_ANSWER: Final = 65536


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What speaks at an address.

    Attributes:
        address: Host and port, or the path of a Unix socket.
        is_http: Whether it is HTTP/1.1; anything else is taken for gRPC.
        grpc_port: The gRPC port of the same server, where it says so.
    """

    address: Address
    is_http: bool
    grpc_port: int | None = None


def probe(target: ServerTarget, seconds: float = PROBE_SECONDS) -> Endpoint:
    """Return what speaks at an address. Raises UnavailableError where nothing listens."""
    address = target.address
    if address.is_unix:
        return Endpoint(address, is_http=False)
    try:
        with (
            socket.create_connection((address.host, address.port), seconds) as plain,
            _encrypted(plain, target) as connection,
        ):
            connection.settimeout(seconds)
            connection.sendall(f"GET /version HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            answer = _first_answer(connection)
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise UnavailableError(f"no server answers at {target}: {reason}") from error
    if not answer.startswith(b"HTTP/1."):
        return Endpoint(address, is_http=False)
    return Endpoint(address, is_http=True, grpc_port=_grpc_port(answer))


def _encrypted(plain: socket.socket, target: ServerTarget) -> socket.socket:
    if not target.is_tls:
        return plain
    context = ssl.create_default_context(cafile=authority_file())
    context.set_alpn_protocols(_PROTOCOLS)
    return context.wrap_socket(plain, server_hostname=target.address.host)


def grpc_address(text: str, setting: str = "--server") -> str:
    """Return the gRPC address of the server at `text`, which may name its HTTP port.

    Raises:
        InvalidRequestError: `text` is not an address.
        UnavailableError: Nothing listens there, or only HTTP of a server that names no other port.
    """
    target = parse_target(text, setting)
    found = probe(target)
    if not found.is_http:
        return str(target)
    if found.grpc_port is None:
        raise UnavailableError(f"{target} speaks HTTP; this command needs the gRPC port")
    return str(target.with_port(found.grpc_port))


def http_url(text: str, setting: str = "--base-url") -> str:
    """Return `text`, or the URL of the HTTP port where it names the gRPC port beside it.

    Raises:
        InvalidRequestError: `text` is not an address.
        UnavailableError: Nothing listens there, or only gRPC.
    """
    if text.startswith("https://"):
        return text
    target = parse_target(text, setting)
    if probe(target).is_http:
        return text if "://" in text else f"http://{text}"
    beside = target.with_port(target.address.port - 1)
    try:
        found: Endpoint | None = probe(beside)
    except UnavailableError:
        found = None
    if found is not None and found.grpc_port == target.address.port:
        return f"http://{beside}"
    raise UnavailableError(f"{target} does not speak HTTP; this command needs the HTTP port")


def _first_answer(connection: socket.socket) -> bytes:
    """Return the head and the short body of an answer, or the first bytes of anything else."""
    answer = b""
    while len(answer) < _MAX_ANSWER:
        piece = connection.recv(4096)
        answer += piece
        if not piece or not b"HTTP/1.".startswith(answer[:7]):
            break
        head, found, body = answer.partition(b"\r\n\r\n")
        if found and len(body) >= _content_length(head):
            break
    return answer


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return 0


def _grpc_port(answer: bytes) -> int | None:
    try:
        port = json.loads(answer.partition(b"\r\n\r\n")[2])["grpc_port"]
    except (ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) else None
