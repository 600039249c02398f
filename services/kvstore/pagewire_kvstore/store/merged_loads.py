"""Merges concurrent loads of one block from a slow tier into one read."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any

from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.tiers.memory import FoundBlock, Pin


@dataclass(slots=True)
class _Read:
    task: "asyncio.Task[FoundBlock | None]"
    num_waiting: int = 0


class MergedLoads:
    """Reads that are under way, by key. Used from one event loop.

    Args:
        read: Reads a block; the result may pin memory.
        add_ref: Adds a reference to a pin.
        unpin: Drops one reference of a pin.
    """

    def __init__(
        self,
        read: Callable[[BlockKey], Coroutine[Any, Any, FoundBlock | None]],
        add_ref: Callable[[Pin], None],
        unpin: Callable[[Pin], None],
    ) -> None:
        self._read = read
        self._add_ref = add_ref
        self._unpin = unpin
        self._reads: dict[tuple[BlockKey, Hashable], _Read] = {}

    async def load(self, key: BlockKey, epoch: Hashable) -> FoundBlock | None:
        """Return a block with a pin reference of the caller's own, or None for a miss.

        A read is cancelled when no caller waits for it. Reads of another `epoch` are not shared.
        """
        place = (key, epoch)
        read = self._reads.get(place)
        if read is None or read.task.done():
            read = self._reads[place] = _Read(asyncio.create_task(self._read(key)))
        read.num_waiting += 1
        try:
            loaded = await asyncio.shield(read.task)
            if loaded is not None and loaded.pin is not None:
                self._add_ref(loaded.pin)
            return loaded
        finally:
            read.num_waiting -= 1
            if not read.num_waiting:
                if self._reads.get(place) is read:
                    del self._reads[place]
                read.task.cancel()
                self._release(read.task)

    def _release(self, task: "asyncio.Task[FoundBlock | None]") -> None:
        """Unpin the block of a read that no caller waits for any more."""
        if not task.done() or task.cancelled() or task.exception() is not None:
            return
        loaded = task.result()
        if loaded is not None and loaded.pin is not None:
            self._unpin(loaded.pin)
