"""Loads the blocks of one Get in order, and prefetches the next block from a slow tier."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from pagewire_kvstore.blocks.types import BlockKey, StoreLayout
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.tiers.memory import FoundBlock
from pagewire_shared.identity.ids import BlockName

Fetched = tuple[AsyncExitStack, list[FoundBlock] | None]
"""Stack that unpins a block when closed, and the groups of the block; None for a miss."""


class BlockFetches:
    """Fetches blocks in order, at most one block ahead of the caller."""

    def __init__(self, store: BlockStore, layout: StoreLayout, names: Sequence[BlockName]) -> None:
        groups = range(len(layout.group_bytes))
        self._store = store
        self._blocks = [[BlockKey(layout.layout_id, group, n) for group in groups] for n in names]
        self._next = 0
        self._absent: set[BlockKey] = set()
        self._ahead: asyncio.Task[Fetched] | None = None

    async def prepare(self) -> None:
        """Look up in one call all blocks that this store does not know.

        A block that Redis does not have either then costs no round trip of its own.
        """
        keys = [key for block in self._blocks for key in block if not self._store.holds(key)]
        if keys:
            self._absent = set(keys) - await self._store.find(keys)

    @property
    def is_next_in_memory(self) -> bool:
        """Whether all groups of the next block are in memory."""
        return all(self._store.is_in_memory(key) for key in self._blocks[self._next])

    async def next(self) -> Fetched:
        """Return the next block, whose stack the caller closes, and prefetch the one after it."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            fetched = await self._fetch(self._blocks[self._next])
        else:
            try:
                fetched = await asyncio.shield(ahead)
            except asyncio.CancelledError:
                self._ahead = ahead  # for `close`
                raise
        self._next += 1
        if self._next < len(self._blocks):
            block = self._blocks[self._next]
            if not all(self._store.is_in_memory(key) or self._is_absent(key) for key in block):
                self._ahead = asyncio.create_task(self._fetch(block))
        return fetched

    async def close(self) -> None:
        """Cancel the prefetch, or unpin its block."""
        if self._ahead is None:
            return
        self._ahead.cancel()
        (outcome,) = await asyncio.gather(self._ahead, return_exceptions=True)
        if not isinstance(outcome, BaseException):
            await outcome[0].aclose()

    def _is_absent(self, key: BlockKey) -> bool:
        # A block that `prepare` did not find may have been put meanwhile.
        return key in self._absent and not self._store.holds(key)

    async def _fetch(self, block: Sequence[BlockKey]) -> Fetched:
        """Load all groups of a block; a block with a missing group is a miss."""
        async with AsyncExitStack() as stack:
            found = await self._load(block, stack)
            kept = stack.pop_all()
        return kept, found

    async def _load(
        self, block: Sequence[BlockKey], stack: AsyncExitStack
    ) -> list[FoundBlock] | None:
        found = []
        for key in block:
            if self._is_absent(key):
                self._store.count_miss(key)
                return None
            loaded = await stack.enter_async_context(self._store.load(key))
            if loaded is None:
                return None
            found.append(loaded)
        return found
