"""A load of whole blocks from a store; LoadRun has the part common to all loads."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import aclosing

from pagewire_shared.errors import InternalError
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_shared.kv.tier import MAX_TIERS, RULE, is_tier_name
from pagewire_worker.offload.connector import KvConnector, LoadedBlock
from pagewire_worker.offload.load_run import LoadRun, Submit
from pagewire_worker.offload.spread_reader import SpreadReader

MAX_UNWRITTEN_BYTES = 8 * 1024 * 1024

Write = Callable[[Sequence[int], Sequence[bytes], Sequence[memoryview | bytes]], None]
"""Writes payloads into blocks and names them; in the model thread."""


class BlockLoad(LoadRun):
    """One order until its answer.

    Args:
        submit: See Submit.
        write: See Write.
        max_blocks: Most blocks that one job writes.

    Attributes:
        connector_fault: How the connector broke its interface, one of a few texts; or None.
    """

    def __init__(
        self,
        *,
        order: LoadOrder,
        connector: KvConnector,
        submit: Submit,
        write: Write,
        max_blocks: int,
    ) -> None:
        super().__init__(order, submit)
        self._connector = connector
        self._write = write
        self._max_blocks = max_blocks
        self._arrived: deque[LoadedBlock] = deque()
        self._tiers: list[str] = []
        self._tier_names: set[str] = set()
        self.connector_fault: str | None = None
        self._reader: SpreadReader | None = None
        if order.copies is not None:
            self._reader = SpreadReader(order, order.copies, connector)
        self._has_room = asyncio.Event()

    @property
    def order(self) -> LoadOrder:
        """The order."""
        return self._order

    @property
    def _has_arrived(self) -> bool:
        return bool(self._arrived)

    def _answer(self, outcome: LoadOutcome) -> LoadAnswer:
        return LoadAnswer(
            load_id=self._order.load_id,
            num_blocks=self._num_written,
            outcome=outcome,
            num_bytes=self._num_bytes,
            seconds=self._seconds,
            tiers=tuple(Counter(self._tiers[: self._num_written]).items()),
            parts=() if self._reader is None else self._reader.parts(outcome),
        )

    async def _read(self) -> None:
        order = self._order
        if self._reader is not None:
            blocks = self._reader.blocks()
        else:
            blocks = self._connector.get(order.store, order.names, order.timeout_seconds)
        async with aclosing(blocks):
            async for block in blocks:
                num_read = len(self._tiers)
                if num_read == len(order.names) or block.name != order.names[num_read]:
                    raise self._blame("it returned another block than the next one")
                self._check_tier(block.tier)
                self._tiers.append(block.tier)
                self._arrived.append(block)
                self._note_bytes(len(block.payload))
                await self._wait_for_room(len(block.payload))

    def _check_tier(self, tier: str) -> None:
        if not is_tier_name(tier):
            raise self._blame(f"the name of a tier is none of {RULE}")
        self._tier_names.add(tier)
        if len(self._tier_names) > MAX_TIERS:
            raise self._blame(f"it named more than {MAX_TIERS} tiers in one load")

    def _blame(self, fault: str) -> InternalError:
        self.connector_fault = fault
        return InternalError(f"the connector is at fault: {fault}")

    async def _wait_for_room(self, block_bytes: int) -> None:
        while len(self._arrived) * block_bytes >= MAX_UNWRITTEN_BYTES:
            self._has_room.clear()
            await self._has_room.wait()

    def _write_some(self) -> int:
        """Write blocks that have arrived, up to a buffer."""
        count = min(len(self._arrived), self._max_blocks)
        batch = [self._arrived.popleft() for _ in range(count)]
        begin = self._num_written
        names = [block.name for block in batch]
        blocks = self._order.blocks[begin : begin + count]
        self._write(blocks, names, [block.payload for block in batch])
        self._num_written = begin + count
        return count

    def _after_write(self, count: int) -> None:
        self._has_room.set()
