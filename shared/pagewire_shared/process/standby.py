"""Makes a process that was started ahead of need wait until its parent says to serve.

A waiting process has imported its code, and has no port, socket file or device yet.
"""

import asyncio
import contextlib
from concurrent.futures import Future, InvalidStateError

GO = b"!"
"""Byte that the parent writes to standard input: serve now."""


class StandbyGate:
    """Passes GO from the thread that reads standard input to the event loop."""

    def __init__(self) -> None:
        self._word: Future[None] = Future()

    def open(self) -> None:
        """Note that GO came, from any thread, also before `wait` is called."""
        with contextlib.suppress(InvalidStateError):
            self._word.set_result(None)

    async def wait(self, stop: asyncio.Event) -> bool:
        """Return True when GO comes, False when `stop` is set first."""
        word = asyncio.wrap_future(self._word)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((word, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return not stop.is_set()
