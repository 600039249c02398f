"""A timer of a connection that can be restarted."""

import asyncio
from collections.abc import Callable


class Timer:
    """Calls back once, after the time of the last `start`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the timer will call back."""
        return self._handle is not None

    def start(self, seconds: float) -> None:
        """Call back in `seconds`, instead of at any earlier set time."""
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
