"""The frontend's link to a process that parses bodies: starts, asks and kills it. All calls block,
and release the interpreter lock meanwhile."""

import contextlib
import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pagewire_frontend.http.body.json_process import HEAD, LAST_PIECE, QUESTION, REFUSAL
from pagewire_frontend.http.body.value_pieces import join
from pagewire_frontend.process_limits import reap_later
from pagewire_shared.errors import InvalidRequestError

MODULE: Final = "pagewire_frontend.http.body.json_process"
SILENCE_SECONDS: Final = 60.0
"""How long the process may send nothing, or take nothing: the largest bodies take a second."""


class ParserEndedError(Exception):
    """The process is gone, or hangs."""


class JsonLink:
    """One parser process; answers one question at a time. Raises OSError where it cannot be
    started."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", MODULE],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={**os.environ, "MALLOC_ARENA_MAX": "1"},
                )
            except BaseException:
                self._socket.close()
                raise
        self._socket.settimeout(SILENCE_SECONDS)
        # Held by the thread that uses the socket.
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def parse(self, chunks: Sequence[bytes]) -> dict[str, Any]:
        """Return the object that `parse_object` reads from a body, given in chunks.

        Raises:
            InvalidRequestError: As `parse_object`.
            ParserEndedError: There is no answer; the process is of no more use.
        """
        try:
            with self._lock:
                return self._ask(chunks)
        except OSError as error:
            raise ParserEndedError from error

    def _ask(self, chunks: Sequence[bytes]) -> dict[str, Any]:
        self._socket.sendall(HEAD.pack(sum(map(len, chunks)), QUESTION))
        for chunk in chunks:
            self._socket.sendall(chunk)
        value: dict[str, Any] = join(self._pieces())
        return value

    def kill(self) -> None:
        """End the process. May be called while another thread waits for an answer."""
        with contextlib.suppress(OSError):
            # Wakes a thread that waits for an answer.
            self._socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        reap_later(self._end)

    def _end(self) -> None:
        self._process.wait()
        with self._lock:
            self._socket.close()

    def _pieces(self) -> Iterator[bytearray]:
        kind = QUESTION
        while kind != LAST_PIECE:
            length, kind = HEAD.unpack(self._receive(HEAD.size))
            frame = self._receive(length)
            if kind == REFUSAL:
                message, code = marshal.loads(frame)
                raise InvalidRequestError(message, code=code)
            yield frame

    def _receive(self, length: int) -> bytearray:
        frame = bytearray(length)
        rest = memoryview(frame)
        while rest:
            num_bytes = self._socket.recv_into(rest)
            if not num_bytes:
                raise ParserEndedError
            rest = rest[num_bytes:]
        return frame
