"""One timer of a connection that can be started again and again."""

import asyncio
from collections.abc import Callable


class Timer:
    """Calls back once, after the time last asked for."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether it will call back."""
        return self._handle is not None

    def start(self, seconds: float) -> None:
        """Call back in `seconds`, and not when it was said before."""
        self.stop()
        self._handle = self._loop.call_later(seconds, self._fire)

    def stop(self) -> None:
        """Do not call back."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._callback()
