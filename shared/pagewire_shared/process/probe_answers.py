"""How a process that was started by another answers whether it gets on.

The parent writes PROBE to standard input; the answer is a status "alive" on standard output,
written by the event loop. So what answers is what does the work, and a process whose loop hangs is
silent.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable

PROBE = b"?"


class ProbeAnswers:
    """Passes probes from the thread that reads them to the event loop.

    Args:
        answer: Called on the loop, once for what was asked until then.
    """

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_asked = False

    def asked(self) -> None:
        """The parent asks; from any thread. Before the loop runs it has to wait."""
        with self._lock:
            self._is_asked = True
            if self._loop is not None:
                self._wake(self._loop)

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer on `loop` from now on; called on it."""
        with self._lock:
            self._loop = loop
            if self._is_asked:
                self._wake(loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(self._say)

    def _say(self) -> None:
        with self._lock:
            is_asked, self._is_asked = self._is_asked, False
        if is_asked:
            self._answer()
