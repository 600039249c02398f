"""Reads the blocks of one load from several KV stores. A load goes on with another copy where a
store fails, does not answer, or has no good copy of a block."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from pagewire_shared.errors import DeadlineError, PagewireError
from pagewire_shared.kv.copies import BlockCopies, first_part
from pagewire_shared.kv.load import LoadOrder, LoadOutcome, StorePart
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import KvConnector, LoadedBlock

MAX_MISSES = 2
"""Blocks that a store may lack in one load before it is not asked any more."""


@dataclass(slots=True)
class _Part:
    """What one store has done so far; it has no `outcome` while it is being read from."""

    num_bytes: int = 0
    seconds: float = 0.0
    outcome: LoadOutcome | None = None
    missing: list[int] = field(default_factory=list)


class SpreadReader:
    """The reading of one order with copies."""

    def __init__(self, order: LoadOrder, copies: BlockCopies, connector: KvConnector) -> None:
        self._order = order
        self._stores = copies.stores
        self._holders = list(copies.holders)
        self._connector = connector
        self._parts: dict[int, _Part] = {}
        self._banned = 0
        self._end = 0.0

    def parts(self, outcome: LoadOutcome) -> tuple[StorePart, ...]:
        """Return what each store has done; the one that is being read from ends with `outcome`."""
        return tuple(
            StorePart(
                store, part.num_bytes, part.seconds, part.outcome or outcome, tuple(part.missing)
            )
            for store, part in self._parts.items()
        )

    async def blocks(self) -> AsyncGenerator[LoadedBlock, None]:
        """Yield the blocks of the order up to the first that no store brings.

        Raises:
            PagewireError: The last store that has the next block failed.
        """
        self._end = time.monotonic() + self._order.timeout_seconds
        at, num_blocks = 0, len(self._order.names)
        error: PagewireError | None = None
        while at < num_blocks:
            found = first_part(self._holders, at, self._banned)
            if found is None:
                if error is not None:
                    raise error
                return
            store, end = found
            part = self._parts.setdefault(store, _Part())
            part.outcome, error = None, None
            try:
                async with aclosing(self._read(store, part, at, end)) as blocks:
                    async for block in blocks:
                        at += 1
                        yield block
            except PagewireError as failure:
                error = failure
            self._note_end(store, part, at, end, error)

    def _note_end(
        self, store: int, part: _Part, at: int, end: int, error: PagewireError | None
    ) -> None:
        """Note how a store brought the blocks up to `at` of those before `end`."""
        if error is None and at == end:
            part.outcome = LoadOutcome.MISSING if part.missing else LoadOutcome.COMPLETE
            return
        if error is None:
            part.outcome, reason = LoadOutcome.MISSING, "missing"
            part.missing.append(at)
            self._holders[at] &= ~(1 << store)
        elif isinstance(error, DeadlineError):
            part.outcome, reason = LoadOutcome.LATE, "late"
        else:
            part.outcome, reason = LoadOutcome.FAILED, "failed"
        if error is not None or len(part.missing) >= MAX_MISSES:
            self._banned |= 1 << store
        if self._holders[at] & ~self._banned:
            metrics.FAILOVERS.labels(reason).inc()

    async def _read(
        self, store: int, part: _Part, begin: int, end: int
    ) -> AsyncGenerator[LoadedBlock, None]:
        """Yield blocks of one store. Raises DeadlineError when the next one does not come in time.

        Where another store has the next block, it may take half of the time that is left.
        """
        names = self._order.names[begin:end]
        left = max(self._end - time.monotonic(), 0.001)
        reading = self._connector.get(self._stores[store], names, left)
        async with aclosing(reading) as blocks:
            for at in range(begin, end):
                has_other = bool(self._holders[at] & ~self._banned & ~(1 << store))
                started = time.monotonic()
                limit = max(self._end - started, 0.001) / (2 if has_other else 1)
                try:
                    async with asyncio.timeout(limit):
                        block = await anext(blocks, None)
                except TimeoutError:
                    raise DeadlineError(f"no block came for {limit:g} s") from None
                finally:
                    part.seconds += time.monotonic() - started
                if block is None:
                    return
                part.num_bytes += len(block.payload)
                yield block
