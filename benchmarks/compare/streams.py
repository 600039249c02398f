"""Streamed completions over raw sockets, read in one thread: servers and client share few cores,
so what is read is only stamped with the time, and understood when all streams have ended."""

import json
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import h11

from compare.work import Request, RunFailedError, Timed

DONE = b"data: [DONE]"
_READ_BYTES = 65536


@dataclass(slots=True)
class Reply:
    """The bytes of one answer.

    Attributes:
        connection: Parses them later; it has written the request.
        sent: When the request was sent.
        reads: What came, and when, in seconds of time.perf_counter.
    """

    connection: h11.Connection
    sent: float = 0.0
    reads: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """Whether the last event has come."""
        return DONE in b"".join(data for _, data in self.reads[-2:])


def complete(
    address: tuple[str, int], model: str, requests: Sequence[Request], timeout_seconds: float
) -> list[Timed]:
    """Send all requests at once and return what came of each.

    Raises:
        RunFailedError: One was refused, broke off or is not over in time.
    """
    try:
        replies = _exchange(address, [body(model, one) for one in requests], timeout_seconds)
    except OSError as error:
        raise RunFailedError(f"{type(error).__name__}: {error}") from error
    return [understand(reply, one) for reply, one in zip(replies, requests, strict=True)]


def body(model: str, request: Request) -> bytes:
    """Return the JSON of a request."""
    return json.dumps(
        {
            "model": model,
            "prompt": request.prompt,
            "max_tokens": request.max_tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
    ).encode()


def _exchange(
    address: tuple[str, int], bodies: Sequence[bytes], timeout_seconds: float
) -> list[Reply]:
    deadline = time.perf_counter() + timeout_seconds
    sockets = [socket.create_connection(address, timeout_seconds) for _ in bodies]
    replies = [Reply(h11.Connection(h11.CLIENT)) for _ in bodies]
    try:
        written = [
            _written(reply, address[0], one) for reply, one in zip(replies, bodies, strict=True)
        ]
        selector = selectors.DefaultSelector()
        for open_socket, reply, data in zip(sockets, replies, written, strict=True):
            reply.sent = time.perf_counter()
            open_socket.sendall(data)
            open_socket.setblocking(False)
            selector.register(open_socket, selectors.EVENT_READ, reply)
        with selector:
            _read_all(selector, deadline)
    finally:
        for open_socket in sockets:
            open_socket.close()
    return replies


def _written(reply: Reply, host: str, data: bytes) -> bytes:
    headers = [("Host", host), ("Content-Type", "application/json"), ("Connection", "close")]
    headers.append(("Content-Length", str(len(data))))
    request = h11.Request(method="POST", target="/v1/completions", headers=headers)
    parts = [reply.connection.send(one) for one in (request, h11.Data(data), h11.EndOfMessage())]
    return b"".join(part for part in parts if part)


def _read_all(selector: selectors.BaseSelector, deadline: float) -> None:
    while selector.get_map():
        left = deadline - time.perf_counter()
        if left <= 0:
            raise RunFailedError(f"{len(selector.get_map())} streams did not end in time")
        for key, _ in selector.select(left):
            open_socket, reply = key.fileobj, key.data
            assert isinstance(open_socket, socket.socket)
            data = open_socket.recv(_READ_BYTES)
            reply.reads.append((time.perf_counter(), data))
            if not data or reply.is_done:
                selector.unregister(open_socket)


def understand(reply: Reply, request: Request) -> Timed:
    """Return when the tokens of an answer came.

    Raises:
        RunFailedError: It is a refusal, or not whole.
    """
    timed = Timed(reply.sent)
    for moment, event in _events(reply):
        if "error" in event:
            raise RunFailedError(f"a stream failed: {event['error']}")
        if any(_has_tokens(choice) for choice in event.get("choices", ())):
            timed.arrivals.append(moment)
        timed.num_tokens = (event.get("usage") or {}).get("completion_tokens") or timed.num_tokens
    if timed.num_tokens != request.max_tokens or not timed.arrivals:
        raise RunFailedError(f"{timed.num_tokens} of {request.max_tokens} tokens came")
    return timed


def _has_tokens(choice: dict[str, Any]) -> bool:
    return bool(choice.get("token_ids") or choice.get("text"))


def _events(reply: Reply) -> Iterator[tuple[float, dict[str, Any]]]:
    line = b""
    for moment, payload in _payloads(reply):
        *whole, line = (line + payload).split(b"\n")
        for one in whole:
            data = one.removeprefix(b"data:").strip()
            if one.startswith(b"data:") and data != b"[DONE]":
                yield moment, json.loads(data)


def _payloads(reply: Reply) -> Iterator[tuple[float, bytes]]:
    refusal: tuple[int, bytes] | None = None
    try:
        for moment, data in reply.reads:
            reply.connection.receive_data(data)
            while True:
                event = reply.connection.next_event()
                if isinstance(event, h11.Response) and event.status_code != 200:
                    refusal = event.status_code, b""
                elif isinstance(event, h11.Data) and refusal:
                    refusal = refusal[0], refusal[1] + bytes(event.data)
                elif isinstance(event, h11.Data):
                    yield moment, bytes(event.data)
                elif not isinstance(event, h11.Response):
                    break
    except h11.RemoteProtocolError as error:
        raise RunFailedError(f"the answer broke off: {error}") from error
    if refusal:
        raise RunFailedError(f"status {refusal[0]}: {refusal[1].decode(errors='replace')[:300]}")
