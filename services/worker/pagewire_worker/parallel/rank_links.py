"""Carries requests of rank 0 to the other ranks beside steps, through a socket for each rank.

The memory of the group carries what a step needs, in the order of steps. Requests belong to no step
and may take long. A rank answers them in a thread of its own, so that no step waits for them.

A request is a line of JSON and a file. The answer is a line of JSON: an object that is empty, or
has the text of an `error`, its `field`, and whether it is the fault of an adapter.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.errors import InternalError, PagewireError
from pagewire_worker.backend.collectives import RankLostError

LINK_SECONDS: Final = 120.0
"""Most time for an answer; a rank that takes longer is lost."""

_MOST_BYTES: Final = 16 * 1024
"""Of a line."""

_MOST_TEXT: Final = 2000
"""Characters of an error."""

_END: Final = b"\n"


class RankLinks:
    """Rank 0's ends of the sockets, by rank from 1 on. Used from any thread.

    Args:
        lost: Called with a rank that is gone, or does not answer, and how; returns the error.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], lost: Callable[[int, str], RankLostError]
    ) -> None:
        self._sockets = tuple(sockets)
        self._lost = lost
        self._lock = threading.Lock()
        for one in self._sockets:
            one.settimeout(LINK_SECONDS)

    @contextlib.contextmanager
    def asked(self, request: Mapping[str, Any], file: int) -> Iterator[None]:
        """Let all other ranks answer a request while the context does its part; wait for all.

        Args:
            request: Values of JSON.
            file: A descriptor, of which each rank gets a copy.

        Raises:
            AdapterError: The adapter does not do in a rank, which the message names.
            InternalError: A rank failed otherwise; it goes on.
            RankLostError: A rank is lost.
        """
        line = json.dumps(request).encode() + _END
        with self._lock:
            for rank, one in enumerate(self._sockets, 1):
                try:
                    socket.send_fds(one, [line], [file])
                except OSError as error:
                    raise self._lost(rank, str(error)) from error
            try:
                yield
            finally:
                # Of all, whatever happened: the next request gets its own.
                answers = [self._answer(rank) for rank in range(1, len(self._sockets) + 1)]
        for rank, answer in enumerate(answers, 1):
            if "error" in answer:
                kind = AdapterError if answer["is_of_adapter"] else InternalError
                raise kind(f"rank {rank}: {answer['error']}", answer["field"])

    def close(self) -> None:
        """End the links; who waits for an answer gets none."""
        for one in self._sockets:
            close_link(one)

    def _answer(self, rank: int) -> dict[str, Any]:
        line = b""
        while not line.endswith(_END):
            try:
                piece = self._sockets[rank - 1].recv(_MOST_BYTES)
            except OSError as error:
                raise self._lost(rank, f"no answer: {error}") from error
            if not piece:
                raise self._lost(rank, "it has closed its link")
            line += piece
        answer: dict[str, Any] = json.loads(line)
        return answer


def answer_requests(link: socket.socket, answer: Callable[[Mapping[str, Any], int], None]) -> None:
    """Answer rank 0 until it ends the link.

    Args:
        answer: Does what a request says with a file, which is closed afterwards. What it raises is
            the answer.
    """
    with link:
        while (found := _request(link)) is not None:
            request, file = found
            try:
                answer(request, file)
            except Exception as error:  # noqa: BLE001 - it is the answer, and rank 0 raises it
                reply = _fault(error)
            else:
                reply = {}
            finally:
                os.close(file)
            # Rank 0 may be gone.
            with contextlib.suppress(OSError):
                link.sendall(json.dumps(reply).encode() + _END)


def close_link(link: socket.socket) -> None:
    """Close a socket, and wake the threads that wait for it."""
    # It may have none to wake: the other end is gone.
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
    link.close()


def _request(link: socket.socket) -> tuple[dict[str, Any], int] | None:
    line, files = b"", list[int]()
    while not line.endswith(_END):
        try:
            piece, found, _, _ = socket.recv_fds(link, _MOST_BYTES, 1)
        except OSError:
            return None
        if not piece:
            return None
        line += piece
        files += found
    (file,) = files
    return json.loads(line), file


def _fault(error: Exception) -> dict[str, Any]:
    is_known = isinstance(error, PagewireError)
    text = str(error) if is_known else f"{type(error).__name__}: {error}"
    return {
        "error": text[:_MOST_TEXT],
        "field": error.field if isinstance(error, PagewireError) else None,
        "is_of_adapter": isinstance(error, AdapterError),
    }
