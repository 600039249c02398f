"""Many readers of server-sent events in one thread, over raw sockets: what a client library would
cost is not measured."""

import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

DONE = b"data: [DONE]\n\n"
_READ_BYTES = 65536


@dataclass
class Reader:
    """One open stream.

    Attributes:
        is_slow: Reads one byte a second.
        tail: The last bytes read.
        num_bytes: Bytes read, headers included.
        arrived_at: When each read came, in seconds.
        is_over: Whether the stream has ended, well or not.
    """

    connection: socket.socket
    is_slow: bool = False
    tail: bytes = b""
    num_bytes: int = 0
    arrived_at: list[float] = field(default_factory=list)
    is_over: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the last event was read."""
        return DONE in self.tail


def post(
    address: tuple[str, int], path: str, body: bytes, *, header: str = "", is_slow: bool = False
) -> Reader:
    """Open a connection and send a request on it; `header` is one more of its own."""
    connection = socket.socket()
    if is_slow:
        # Before connecting: the window offered depends on it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(address)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {address[0]}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n"
    )
    head += f"{header}\r\n\r\n" if header else "\r\n"
    connection.sendall(head.encode() + body)
    connection.setblocking(False)
    return Reader(connection, is_slow)


def read_all(readers: Sequence[Reader], timeout_seconds: float) -> None:
    """Read until every reader that is not slow has its stream whole.

    Raises:
        TimeoutError: Some stream did not end.
    """
    deadline = time.monotonic() + timeout_seconds
    selector = selectors.DefaultSelector()
    slow = [reader for reader in readers if reader.is_slow]
    for reader in readers:
        if not reader.is_slow:
            selector.register(reader.connection, selectors.EVENT_READ, reader)
    next_sip = time.monotonic()
    while selector.get_map():
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"{len(selector.get_map())} streams have not ended")
        for key, _ in selector.select(0.1):
            _read(key.data, _READ_BYTES)
            if key.data.is_over:
                selector.unregister(key.data.connection)
        if slow and now >= next_sip:
            next_sip = now + 1.0
            for reader in slow:
                _read(reader, 1)


def _read(reader: Reader, num_bytes: int) -> None:
    if reader.is_over:
        return
    try:
        data = reader.connection.recv(num_bytes)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if not data:
        reader.is_over = True
        reader.connection.close()
        return
    reader.num_bytes += len(data)
    reader.tail = (reader.tail + data)[-64:]
    reader.arrived_at.append(time.monotonic())
