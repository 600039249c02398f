"""Prompts of many tokens one at a time: each of their steps takes milliseconds of the event loop,
and those of a hundred at once would be one pause of a second for every stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from pagewire_frontend.prompts.fair_turns import FairTurns

LARGE_TOKENS: Final = 4096
"""From so many tokens on a prompt waits for its turn: it costs the loop some 0.1 ms per step."""


class LargePrompts:
    """Gives turns, between tenants fairly. Between two turns everything else gets on."""

    def __init__(self) -> None:
        self._turns = FairTurns(1)

    @asynccontextmanager
    async def turn(self, tenant: str | None, num_tokens: int) -> AsyncIterator[None]:
        """Wait for a turn, if a prompt of `num_tokens` needs one, and hold it."""
        if num_tokens < LARGE_TOKENS:
            yield
            return
        await self._turns.take(tenant)
        try:
            yield
        finally:
            self._turns.give()
