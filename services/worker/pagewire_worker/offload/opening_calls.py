"""Ends calls that have not begun when their channel is closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pagewire_shared.errors import DeadlineError, UnavailableError


class OpeningCalls:
    """Calls that wait to send their first message.

    When a channel is closed, gRPC ends the calls over it that have begun. Other calls wait for ever
    (seen with grpcio 1.85).
    """

    def __init__(self) -> None:
        self._timeouts: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def opening(self, seconds: float) -> AsyncIterator[None]:
        """Surround the first messages of a call.

        Raises:
            DeadlineError: The call has not sent them after `seconds`.
            UnavailableError: The channel was closed.
        """
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                self._timeouts.add(timeout)
                yield
        except TimeoutError as error:
            if timeout not in self._timeouts:
                raise UnavailableError("the link to the store was closed") from error
            raise DeadlineError(f"the store took no request for {seconds:g} s") from error
        finally:
            self._timeouts.discard(timeout)

    def end(self) -> None:
        """End all calls: their channel is closed."""
        timeouts, self._timeouts = self._timeouts, set()
        for timeout in timeouts:
            timeout.reschedule(0.0)
