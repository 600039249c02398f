"""Finds streams whose client takes nothing, with one timer for all of them: a timer per message
would cost more than the message's own bookkeeping."""

import asyncio
import logging
from collections.abc import Callable

_logger = logging.getLogger(__name__)

STALLED = "the client took nothing for longer than the server waits"
"""Why a stream is cut."""

_LOOKS_PER_LIMIT = 4


class Watched:
    """One stream; `begin_write` and `end_write` around every write."""

    __slots__ = ("_since", "cut")

    def __init__(self, cut: Callable[[], None]) -> None:
        self.cut = cut
        self._since: float | None = None

    def begin_write(self) -> None:
        """Note that a message is being handed over, which waits while the client has no room."""
        self._since = asyncio.get_running_loop().time()

    def end_write(self) -> None:
        """Note that the message was taken."""
        self._since = None

    def has_stalled(self, now: float, seconds: float) -> bool:
        """Return whether a write has waited for `seconds`."""
        return self._since is not None and now - self._since >= seconds


class StallWatch:
    """Watches all streams of a process."""

    def __init__(self, seconds: float) -> None:
        """Create the stall watch.

        Args:
            seconds: Time after which a stream is cut; up to a quarter more may pass.
        """
        self._seconds = seconds
        self._streams: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, cut: Callable[[], None]) -> Watched:
        """Watch a stream until `forget`; `cut` is called once at most."""
        stream = Watched(cut)
        self._streams.add(stream)
        if self._timer is None:
            self._arm()
        return stream

    def forget(self, stream: Watched) -> None:
        """Stop watching a stream that ended."""
        self._streams.discard(stream)

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._seconds / _LOOKS_PER_LIMIT, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        for stream in [item for item in self._streams if item.has_stalled(now, self._seconds)]:
            _logger.warning("a client took nothing for %g s: its stream is cut", self._seconds)
            self._streams.discard(stream)
            stream.cut()
        self._timer = None
        if self._streams:
            self._arm()
