"""The pinned blocks that a reader reads in place in shared memory, until it releases them."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from pagewire_shared.errors import DeadlineError, PagewireError, WireError
from pagewire_shared.identity.ids import BlockName, short


class SharedPins:
    """The blocks of one stream that are pinned for its reader.

    Args:
        stall_seconds: Longest time without a release once all blocks were sent.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._pinned: dict[BlockName, AsyncExitStack] = {}
        self._changed = asyncio.Event()
        self._has_ended = False
        self._error: PagewireError | None = None

    def __len__(self) -> int:
        return len(self._pinned)

    def keep(self, name: BlockName, pins: AsyncExitStack) -> None:
        """Keep a block pinned; closing `pins` unpins it."""
        self._pinned[name] = pins

    async def release(self, names: Sequence[BlockName]) -> None:
        """Unpin blocks. Raises WireError for a block that is not pinned here."""
        for name in names:
            pins = self._pinned.pop(name, None)
            if pins is None:
                raise WireError(f"block {short(name)} is not held", field="release")
            await pins.aclose()
        self._changed.set()

    def end(self, error: PagewireError | None) -> None:
        """Note that the reader sends no more releases, because of `error` if it is not None."""
        self._has_ended = True
        self._error = error
        self._changed.set()

    async def wait_released(self) -> None:
        """Wait until no block is pinned, or the reader ended its side.

        Raises:
            DeadlineError: The reader released nothing for too long.
            PagewireError: The error given to `end`.
        """
        while self._pinned and not self._has_ended:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._stall_seconds):
                    await self._changed.wait()
            except TimeoutError as error:
                raise DeadlineError(
                    f"the reader released no block for {self._stall_seconds:g} seconds"
                ) from error
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Unpin all blocks."""
        while self._pinned:
            _, pins = self._pinned.popitem()
            await pins.aclose()
