"""One load under way: blocks come in the event loop and are written by jobs of the model thread.

A job takes what is there when it runs, up to a buffer, so a load waits for few steps. Once the load
is closed no job of it writes any more, not even one that was queued before.
"""

import asyncio
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import aclosing

from pagewire_shared.cancellation import is_cancelled
from pagewire_shared.errors import DeadlineError, InternalError, PagewireError
from pagewire_shared.kv_tier import MAX_TIERS, RULE, is_tier_name
from pagewire_worker.offload.connector import KvConnector, LoadedBlock
from pagewire_worker.offload.load_order import LoadAnswer, LoadOrder, LoadOutcome

_logger = logging.getLogger(__name__)

MAX_UNWRITTEN_BYTES = 8 * 1024 * 1024

Write = Callable[[Sequence[int], Sequence[bytes], Sequence[memoryview | bytes]], None]
"""Writes payloads into blocks and names them; in the model thread."""

Submit = Callable[[Callable[[], int]], "asyncio.Future[int]"]
"""Queues a job for the model thread. Raises queue.Full."""


class BlockLoad:
    """One order until its answer.

    Args:
        order: What to load.
        connector: Where from.
        submit: See Submit.
        write: See Write.
        max_blocks: How many are written in one job.

    Attributes:
        connector_fault: What the connector did against its interface; one of a few texts.
    """

    def __init__(
        self,
        order: LoadOrder,
        connector: KvConnector,
        submit: Submit,
        write: Write,
        max_blocks: int,
    ) -> None:
        self._order = order
        self._connector = connector
        self._submit = submit
        self._write = write
        self._max_blocks = max_blocks
        self._started = time.monotonic()
        self._arrived: deque[LoadedBlock] = deque()
        self._tiers: list[str] = []
        self._tier_names: set[str] = set()
        self.connector_fault: str | None = None
        self._num_bytes = 0
        self._last_seconds = 0.0
        self._num_written = 0
        self._has_news = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_cancelled = asyncio.Event()
        self._guard = threading.Lock()
        self._is_over = False
        self._job: asyncio.Future[int] | None = None
        self._is_job_running = False

    def cancel(self) -> None:
        """Let `run` answer soon with what is written."""
        self._is_cancelled.set()

    async def run(self) -> LoadAnswer:
        """Load, by the end of the order's time at the latest. Cancelled, it writes nothing more."""
        work = asyncio.create_task(self._work())
        stop = asyncio.create_task(self._is_cancelled.wait())
        try:
            await asyncio.wait(
                (work, stop),
                timeout=self._order.timeout_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            outcome = LoadOutcome.LATE
            if work.done():
                outcome = work.result()
            elif stop.done():
                outcome = LoadOutcome.CANCELLED
        finally:
            work.cancel()
            stop.cancel()
            is_writing = self._close()
        if is_writing and self._job is not None:
            # What it raises was seen by nobody else, and is of no interest any more.
            await asyncio.gather(self._job, return_exceptions=True)
        return self._answer(outcome)

    def _close(self) -> bool:
        """Let no further job write; return whether one writes right now, which is soon done."""
        with self._guard:
            self._is_over = True
            return self._is_job_running

    def _answer(self, outcome: LoadOutcome) -> LoadAnswer:
        num_blocks = self._num_written
        if num_blocks == len(self._order.names):
            outcome = LoadOutcome.COMPLETE
        return LoadAnswer(
            load_id=self._order.load_id,
            num_blocks=num_blocks,
            outcome=outcome,
            num_bytes=self._num_bytes,
            seconds=self._last_seconds or time.monotonic() - self._started,
            tiers=Counter(self._tiers[:num_blocks]),
        )

    async def _work(self) -> LoadOutcome:
        """Read and write side by side until nothing more comes and all is written."""
        reading = asyncio.create_task(self._read())
        try:
            while not (reading.done() and not self._arrived):
                if not self._arrived:
                    await self._wait_for_news(reading)
                    continue
                self._job = self._submit(self._write_some)
                await asyncio.shield(self._job)
                self._has_room.set()
            await reading
            return LoadOutcome.MISSING
        except DeadlineError:
            return LoadOutcome.LATE
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            return LoadOutcome.FAILED
        except PagewireError as error:
            _logger.debug("load %d failed: %s", self._order.load_id, error)
            return LoadOutcome.FAILED
        except Exception:
            # A connector of somebody else, or a full queue of jobs: a load less, and no more.
            _logger.exception("load %d failed", self._order.load_id)
            return LoadOutcome.FAILED
        finally:
            reading.cancel()

    async def _wait_for_news(self, reading: "asyncio.Task[None]") -> None:
        self._has_news.clear()
        news = asyncio.create_task(self._has_news.wait())
        await asyncio.wait((reading, news), return_when=asyncio.FIRST_COMPLETED)
        news.cancel()

    async def _read(self) -> None:
        order = self._order
        blocks = self._connector.get(order.address, order.names, order.timeout_seconds)
        async with aclosing(blocks):
            async for block in blocks:
                num_read = len(self._tiers)
                if num_read == len(order.names) or block.name != order.names[num_read]:
                    raise self._blame("it returned another block than the next one")
                self._check_tier(block.tier)
                self._tiers.append(block.tier)
                self._num_bytes += len(block.payload)
                self._last_seconds = time.monotonic() - self._started
                self._arrived.append(block)
                self._has_news.set()
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
        """Write what has come, up to a buffer; in the model thread."""
        with self._guard:
            if self._is_over:
                return 0
            self._is_job_running = True
        try:
            count = min(len(self._arrived), self._max_blocks)
            batch = [self._arrived.popleft() for _ in range(count)]
            begin = self._num_written
            names = [block.name for block in batch]
            blocks = self._order.blocks[begin : begin + count]
            self._write(blocks, names, [block.payload for block in batch])
            self._num_written = begin + count
            return count
        finally:
            with self._guard:
                self._is_job_running = False
