"""Keeps one client of a store: made in a thread, and again some seconds after a failure."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_shared.process.backoff import Backoff
from pagewire_worker.offload.blocking_calls import BlockingCalls

_logger = logging.getLogger(__name__)


class ClosableClient(Protocol):
    """A client that lets go of its resources."""

    def close(self) -> None:
        """Close it; may block."""
        ...


Client = TypeVar("Client", bound=ClosableClient)


class Reconnection(Generic[Client]):
    """The client of one store.

    Args:
        open_client: Makes a client; may block.

    Attributes:
        num_losses: Times that the store failed.
    """

    def __init__(self, calls: BlockingCalls, open_client: Callable[[], Client]) -> None:
        self.num_losses = 0
        self._calls = calls
        self._open_client = open_client
        self._backoff = Backoff(1.0, 30.0)
        self._retry_at = 0.0
        self._opening: asyncio.Future[Client] | None = None
        self._is_closed = False

    def begin(self) -> None:
        """Begin to connect, unless that is done or under way or failed a moment ago."""
        if self._is_closed or self._opening is not None or time.monotonic() < self._retry_at:
            return
        self._opening = self._calls.begin(self._open_client)
        self._opening.add_done_callback(self._note)

    async def client(self, seconds: float) -> Client:
        """Return the client.

        Raises:
            UnavailableError: The store takes no client within `seconds`.
        """
        self.begin()
        if self._opening is None:
            raise UnavailableError("the store cannot be reached")
        await asyncio.wait((self._opening,), timeout=seconds)
        if not self._opening or not self._opening.done():
            raise UnavailableError("the store has not taken the client yet")
        return self._opening.result()

    async def close(self, seconds: float) -> None:
        """Close the client, for good; a client that is being made is closed when it is there."""
        self._is_closed = True
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.add_done_callback(self._close_late)
        elif opening.exception() is None:
            with suppress(PagewireError):
                await self._calls.run(opening.result().close, seconds)

    def _close_late(self, opening: "asyncio.Future[Client]") -> None:
        if not opening.cancelled() and opening.exception() is None:
            with suppress(PagewireError):
                self._calls.begin(opening.result().close)

    def _note(self, opening: "asyncio.Future[Client]") -> None:
        error = None if opening.cancelled() else opening.exception()
        if error is None:
            self._backoff.reset()
            return
        if self._opening is opening:
            self._opening = None
        self._retry_at = time.monotonic() + self._backoff.next_seconds()
        _logger.warning("no client of the store: %s", error)
