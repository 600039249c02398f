"""Lets two hosts of a group prove to each other that they have its key, before anything else.

Each side answers a challenge of the other one with an HMAC over all that was said; the key itself
is never sent. Messages are JSON behind their length, a little-endian u32. Bytes that follow on a
connection are neither sealed nor encrypted.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from pagewire_shared.errors import PagewireError

MAX_MESSAGE_BYTES: Final = 64 * 1024
HANDSHAKE_SECONDS: Final = 5.0

_LENGTH: Final = struct.Struct("<I")
_NONCE_BYTES: Final = 16


class HostRefusedError(PagewireError):
    """The other host does not belong to the group, or says that this one does not."""


class HostGoneError(PagewireError):
    """The connection to the other host has ended, or nothing comes in time."""


Facts = Mapping[str, Any]


def send_message(peer: socket.socket, message: Facts) -> bytes:
    """Send one message, and return its bytes. Raises HostGoneError."""
    data = json.dumps(message).encode()
    with _gone_on_error():
        peer.sendall(_LENGTH.pack(len(data)) + data)
    return data


def receive_message(peer: socket.socket, deadline: float | None) -> tuple[dict[str, Any], bytes]:
    """Return the next message and its bytes.

    Args:
        deadline: Of `time.monotonic`; None for no end.

    Raises:
        HostGoneError: The connection ended, or the message has not come in time.
        HostRefusedError: The bytes are no message.
    """
    (length,) = _LENGTH.unpack(_receive(peer, _LENGTH.size, deadline))
    if length > MAX_MESSAGE_BYTES:
        raise HostRefusedError(f"a message of {length} bytes, at most {MAX_MESSAGE_BYTES} may be")
    data = _receive(peer, length, deadline)
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise HostRefusedError("it sends what is no message of a group of ranks")
    return message, data


def has_news(peer: socket.socket, seconds: float = 0.0) -> bool:
    """Return whether a message or the end of the connection has come; waits so long for it."""
    waiting = select.poll()
    waiting.register(peer, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def introduce(peer: socket.socket, key: bytes, facts: Facts) -> None:
    """Introduce this host to the one that it has dialled.

    Raises:
        HostRefusedError: It has another key, or refuses these facts and says why.
        HostGoneError: It does not answer.
    """
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    said = send_message(peer, {"nonce": secrets.token_hex(_NONCE_BYTES), "facts": facts})
    answer, _ = receive_message(peer, deadline)
    nonce = str(answer.get("nonce"))
    if not _is_proof(answer, _proof(key, "answer", said, nonce)):
        raise HostRefusedError("it has another key of ranks (--rank-key-file)")
    send_message(peer, {"proof": _proof(key, "introduce", said, nonce)})
    outcome, _ = receive_message(peer, deadline)
    if "refused" in outcome:
        raise HostRefusedError(str(outcome["refused"]))


def admit(peer: socket.socket, key: bytes) -> dict[str, Any]:
    """Return the facts of a host that dials this one; `accept` or `refuse` comes next.

    Raises:
        HostRefusedError: It has another key, or speaks no such protocol.
        HostGoneError: It does not answer.
    """
    deadline = time.monotonic() + HANDSHAKE_SECONDS
    hello, said = receive_message(peer, deadline)
    nonce = secrets.token_hex(_NONCE_BYTES)
    send_message(peer, {"nonce": nonce, "proof": _proof(key, "answer", said, nonce)})
    answer, _ = receive_message(peer, deadline)
    if not _is_proof(answer, _proof(key, "introduce", said, nonce)):
        refuse(peer, "it has another key of ranks (--rank-key-file)")
    facts = hello.get("facts")
    return facts if isinstance(facts, dict) else {}


def accept(peer: socket.socket) -> None:
    """Say that the facts are those of a host of the group. Raises HostGoneError."""
    send_message(peer, {"accepted": True})


def refuse(peer: socket.socket, reason: str) -> NoReturn:
    """Send the other host the reason why it is refused, and raise HostRefusedError."""
    with contextlib.suppress(HostGoneError):
        send_message(peer, {"refused": reason})
    raise HostRefusedError(reason)


def _proof(key: bytes, role: str, said: bytes, nonce: str) -> str:
    # Roles keep a proof from being sent back; nonces have one length.
    return hmac.new(key, f"{role} {nonce} ".encode() + said, hashlib.sha256).hexdigest()


def _is_proof(answer: Facts, expected: str) -> bool:
    return hmac.compare_digest(expected.encode(), str(answer.get("proof")).encode())


def _receive(peer: socket.socket, num_bytes: int, deadline: float | None) -> bytes:
    found = bytearray()
    while len(found) < num_bytes:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise HostGoneError("it does not answer in time")
        with _gone_on_error():
            peer.settimeout(left)
            part = peer.recv(num_bytes - len(found))
        if not part:
            raise HostGoneError("it has ended the connection")
        found += part
    return bytes(found)


@contextlib.contextmanager
def _gone_on_error() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise HostGoneError("it does not answer in time") from None
    except OSError as error:
        raise HostGoneError(f"the connection is broken: {error.strerror or error}") from error
