"""Answers a parent process that probes whether its child makes progress.

The parent writes PROBE to standard input. The child's event loop writes the status "alive" to
standard output, so a process whose loop hangs stays silent.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable

PROBE = b"?"


class ProbeAnswers:
    """Passes probes from the thread that reads them to the event loop.

    Args:
        answer: Called on the loop, once for all probes until then.
    """

    def __init__(self, answer: Callable[[], None]) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_asked = False

    def asked(self) -> None:
        """Note a probe of the parent, from any thread; answered once the loop runs."""
        with self._lock:
            self._is_asked = True
            if self._loop is not None:
                self._wake(self._loop)

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer on `loop` from now on; must be called on that loop."""
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
