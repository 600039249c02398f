"""A queue in which tenants take turns, however many items each of them has."""

import asyncio
from collections import OrderedDict, deque
from typing import Generic, TypeVar


class FairTurns:
    """Gives out a fixed number of turns; waiting tenants take turns."""

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
                # The turn was given already.
                self.give()
            raise

    def give(self) -> None:
        """Hand the turn to the next in the queue, or keep it free."""
        while len(self._waiting):
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
        self._num_free += 1


Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """First in, first out within a tenant."""

    def __init__(self) -> None:
        # The tenant in front is the next; tenants without items are left out.
        self._waiting: OrderedDict[str | None, deque[Item]] = OrderedDict()
        self._num_items = 0

    def __len__(self) -> int:
        return self._num_items

    def put(self, tenant: str | None, item: Item) -> None:
        """Add an item behind those of its tenant."""
        self._waiting.setdefault(tenant, deque()).append(item)
        self._num_items += 1

    def pop(self) -> Item:
        """Return the next item. Raises IndexError for an empty queue."""
        if not self._waiting:
            raise IndexError("the queue is empty")
        tenant, items = next(iter(self._waiting.items()))
        item = items.popleft()
        self._num_items -= 1
        if items:
            self._waiting.move_to_end(tenant)
        else:
            del self._waiting[tenant]
        return item

    def discard(self, tenant: str | None, item: Item) -> bool:
        """Take an item out; return whether it was there."""
        items = self._waiting.get(tenant)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._num_items -= 1
        if not items:
            del self._waiting[tenant]
        return True
