"""Blocks that a reader looks at in shared memory: they stay until it says that it has. Sends
nothing."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from pagewire_shared.errors import DeadlineError, PagewireError, WireError
from pagewire_shared.identity.ids import BlockName, short


class SharedHolds:
    """The blocks of one stream that must stay where they are.

    Args:
        stall_seconds: Longest time in which a reader may release nothing once all were sent.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._stall_seconds = stall_seconds
        self._held: dict[BlockName, AsyncExitStack] = {}
        self._changed = asyncio.Event()
        self._has_ended = False
        self._error: PagewireError | None = None

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, name: BlockName, hold: AsyncExitStack) -> None:
        """Keep a block; `hold` lets it go when it is closed."""
        self._held[name] = hold

    async def release(self, names: Sequence[BlockName]) -> None:
        """Let blocks go. Raises WireError for one that is not held."""
        for name in names:
            hold = self._held.pop(name, None)
            if hold is None:
                raise WireError(f"block {short(name)} is not held", field="release")
            await hold.aclose()
        self._changed.set()

    def end(self, error: PagewireError | None) -> None:
        """Note that the reader will release nothing more, because of `error` if there is one."""
        self._has_ended = True
        self._error = error
        self._changed.set()

    async def wait_released(self) -> None:
        """Wait until nothing is held, or the reader ended its side.

        Raises:
            DeadlineError: The reader released nothing for too long.
            PagewireError: What `end` was told.
        """
        while self._held and not self._has_ended:
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
        """Let everything go."""
        while self._held:
            _, hold = self._held.popitem()
            await hold.aclose()
