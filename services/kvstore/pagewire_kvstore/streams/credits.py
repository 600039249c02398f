"""Credits: the number of chunks that a reader accepts, granted by one task and taken by another."""

import asyncio

from pagewire_shared.errors import DeadlineError, PagewireError, WireError

MAX_CREDITS = 1 << 20


class Credits:
    """Credits that one task grants and another takes.

    Args:
        stall_seconds: Longest wait for credit.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._num_free = 0
        self._end: PagewireError | None = None
        self._changed = asyncio.Event()

    def grant(self, num_chunks: int) -> None:
        """Allow further chunks. Raises WireError above MAX_CREDITS."""
        if self._num_free + num_chunks > MAX_CREDITS:
            raise WireError(f"more than {MAX_CREDITS} credits", field="credit")
        self._num_free += num_chunks
        self._changed.set()

    def has(self, num_chunks: int) -> bool:
        """Return whether `take` gets so many credits without waiting."""
        return self._num_free >= num_chunks

    def end(self, error: PagewireError) -> None:
        """Make every `take` that finds no credit raise `error` from now on."""
        self._end = error
        self._changed.set()

    async def take(self, num_chunks: int = 1) -> None:
        """Wait for credits and use them up.

        Raises:
            DeadlineError: The reader granted too few credits in time.
            PagewireError: The error given to `end`.
        """
        if self._num_free < num_chunks:
            try:
                async with asyncio.timeout(self._stall_seconds):
                    await self._wait_for(num_chunks)
            except TimeoutError as error:
                raise DeadlineError(
                    f"the reader granted no credit for {self._stall_seconds:g} seconds"
                ) from error
        self._num_free -= num_chunks

    async def _wait_for(self, num_chunks: int) -> None:
        while self._num_free < num_chunks:
            if self._end is not None:
                raise self._end
            self._changed.clear()
            await self._changed.wait()
