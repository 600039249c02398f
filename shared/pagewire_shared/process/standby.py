"""How a process that was started ahead of need waits for its parent's word.

Until then it has imported what it needs, and holds no port, no file of a socket and no device.
"""

import asyncio
import contextlib
from concurrent.futures import Future, InvalidStateError

GO = b"!"
"""What the parent writes to standard input: serve now."""


class StandbyGate:
    """Passes the word from the thread that reads it to the event loop."""

    def __init__(self) -> None:
        self._word: Future[None] = Future()

    def open(self) -> None:
        """The parent says go, perhaps before anybody waits; from any thread."""
        with contextlib.suppress(InvalidStateError):
            self._word.set_result(None)

    async def wait(self, stop: asyncio.Event) -> bool:
        """Return True at the word, False when `stop` is set first."""
        word = asyncio.wrap_future(self._word)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((word, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return not stop.is_set()
