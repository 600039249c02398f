"""Tracks the loads under way: each order is checked, begun once and answered once."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from pagewire_shared.errors import WireError
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_worker.offload.load_run import LoadRun

Load = TypeVar("Load", bound=LoadRun)


class OpenLoads(Generic[Load]):
    """Loads into one pool.

    Args:
        max_loads: Most loads at once; each holds some MiB.
    """

    def __init__(self, num_blocks: int, max_loads: int) -> None:
        self._num_blocks = num_blocks
        self._max_loads = max_loads
        self._loads: dict[int, Load] = {}

    def holds(self, load_id: int) -> bool:
        """Whether a load with this id is under way."""
        return load_id in self._loads

    def cancel(self, load_id: int) -> None:
        """End a load early; does nothing if it was answered already."""
        if load_id in self._loads:
            self._loads[load_id].cancel()

    def begin(
        self,
        order: LoadOrder,
        make: Callable[[], Load],
        note: Callable[[Load | None, LoadAnswer], None],
    ) -> "asyncio.Future[LoadAnswer]":
        """Begin a load; its future is the answer. If that is cancelled, no more is written.

        Args:
            order: A checked order.
            note: Called with the answer, and with the load or None if there were too many.
        """
        if len(self._loads) >= self._max_loads:
            answer = LoadAnswer(order.load_id, 0, LoadOutcome.FAILED)
            note(None, answer)
            future = asyncio.get_running_loop().create_future()
            future.set_result(answer)
            return future
        load = make()
        self._loads[order.load_id] = load
        return asyncio.ensure_future(self._answer(order, load, note))

    def check(self, order: LoadOrder) -> None:
        """Raise WireError if the order contradicts the contract."""
        if order.load_id in self._loads:
            raise WireError(f"load_id: {order.load_id} is under way", field="load_id")
        if not order.names or len(order.names) != len(order.blocks):
            raise WireError(
                f"blocks: {len(order.blocks)} for {len(order.names)} names", field="blocks"
            )
        if len(set(order.blocks)) != len(order.blocks) or len(set(order.names)) != len(order.names):
            raise WireError("blocks: a block or a name is there twice", field="blocks")
        if max(order.blocks) >= self._num_blocks:
            raise WireError(f"blocks: block {max(order.blocks)} does not exist", field="blocks")

    async def _answer(
        self, order: LoadOrder, load: Load, note: Callable[[Load | None, LoadAnswer], None]
    ) -> LoadAnswer:
        try:
            answer = await load.run()
        finally:
            del self._loads[order.load_id]
        note(load, answer)
        return answer
