"""Turns at something of which there are a few, between tenants fairly."""

import asyncio

from pagewire_frontend.prompts.fair_queue import FairQueue


class FairTurns:
    """So many have a turn at once; of those who wait, the tenants go in turns."""

    def __init__(self, num_turns: int) -> None:
        self._num_free = num_turns
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()

    async def take(self, tenant: str | None) -> None:
        """Wait for a turn; `give` it back."""
        if self._num_free:
            self._num_free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(tenant, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._waiting.discard(tenant, turn):
                # It was given already.
                self.give()
            raise

    def give(self) -> None:
        """Hand a turn to the next, or keep it for who comes."""
        while len(self._waiting):
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._num_free += 1
