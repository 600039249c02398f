"""Sends batches to a connector, a few at once, and pauses when the store does not keep up.

Runs in the event loop of the worker. During a pause batches are dropped; the model thread checks
`is_open` and copies none out. A circuit breaker makes the pauses: a failure opens it for a pause
that doubles up to MAX_PAUSE_SECONDS. The next batch after a pause is the probe.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError
from pagewire_shared.process.backoff import Backoff
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.offload.put_batch import PutBatch

_logger = logging.getLogger(__name__)

PUT_SECONDS = 30.0
NUM_PUTS = 3
"""While the store makes the blocks of one put visible, the next puts are under way."""
MAX_BATCHES = 4
"""Most batches in one put: its round trips cost as much as copying a few MiB."""
MAX_PUT_BYTES = 64 * 1024 * 1024
"""A put takes no further batch beyond this size, because a store reserves room for all of it."""
SLOW_SECONDS = 2.0
"""After a put that took longer, batches are put one by one, to be in time on a slow link."""
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 30.0


class PutSender:
    """The outlet of a BlockOffloader.

    Args:
        finish_put: Gives a batch back: with the names that are stored, or None, and whether the
            store is another one than before.
        nudge: Tells the model thread that there is something to do.
        put_seconds: How long a put may take.
    """

    def __init__(
        self,
        connector: KvConnector,
        finish_put: Callable[[PutBatch, frozenset[bytes] | None, bool], None],
        nudge: Callable[[], None],
        *,
        put_seconds: float = PUT_SECONDS,
        backoff: Backoff | None = None,
    ) -> None:
        self._connector = connector
        self._finish_put = finish_put
        self._nudge = nudge
        self._put_seconds = put_seconds
        self._backoff = backoff or Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        self._loop = asyncio.get_running_loop()
        self._batches: asyncio.Queue[PutBatch] = asyncio.Queue()
        self._paused_until = 0.0
        self._has_store = False
        self._is_failing = False
        self._is_slow = False
        self._store_id = b""

    @property
    def is_open(self) -> bool:
        """Whether a store takes blocks now."""
        return self._has_store and time.monotonic() >= self._paused_until

    def set_store(self, *, is_there: bool) -> None:
        """Set whether the scheduler has named a store."""
        self._has_store = is_there

    def send(self, batch: PutBatch) -> None:
        """Take a batch, from any thread; buffers bound the number of batches."""
        self._loop.call_soon_threadsafe(self._batches.put_nowait, batch)

    async def run(self) -> None:
        """Put batches for ever."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(NUM_PUTS):
                tasks.create_task(self._run_one())

    async def _run_one(self) -> None:
        while True:
            batches = [await self._batches.get()]
            most = 1 if self._is_slow else MAX_BATCHES
            num_bytes = batches[0].payloads.numel()
            while len(batches) < most and num_bytes < MAX_PUT_BYTES and not self._batches.empty():
                batches.append(self._batches.get_nowait())
                num_bytes += batches[-1].payloads.numel()
            names: frozenset[bytes] | None = None
            try:
                names = await self._put(batches)
            finally:
                store_id = self._connector.store_id
                is_new, self._store_id = store_id != self._store_id, store_id
                for batch in batches:
                    self._finish_put(batch, names, is_new)
                    is_new = False
                self._nudge()

    async def _put(self, batches: Sequence[PutBatch]) -> frozenset[bytes] | None:
        """Return the names of these batches that are stored; None if the put failed."""
        num_blocks = sum(len(batch.entries) for batch in batches)
        if not self.is_open:
            metrics.DROPPED_BLOCKS.labels("store_down").inc(num_blocks)
            return None
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._put_seconds):
                blocks = [block for batch in batches for block in batch.blocks()]
                names = await self._connector.put(blocks)
        except TimeoutError:
            self._is_slow = True
            self._fail(num_blocks, DeadlineError(f"no answer within {self._put_seconds:g} s"))
            return None
        except PagewireError as error:
            self._fail(num_blocks, error)
            return None
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            self._fail(num_blocks, UnavailableError("the put was cancelled"))
            return None
        except Exception as error:
            # The connector may be foreign code: its faults must not end the worker.
            if not self._is_failing:
                _logger.exception("the connector failed")
            self._fail(num_blocks, error)
            return None
        seconds = time.monotonic() - started
        self._is_slow = seconds > SLOW_SECONDS
        metrics.PUT_SECONDS.observe(seconds)
        self._succeed(batches, names)
        return names

    def _succeed(self, batches: Sequence[PutBatch], names: frozenset[bytes]) -> None:
        for batch in batches:
            stored = sum(entry.name in names for entry in batch.entries)
            copies = sum(entry.is_copy and entry.name in names for entry in batch.entries)
            metrics.COPIES.labels("put").inc(copies)
            metrics.OFFLOADED_BLOCKS.inc(stored)
            metrics.OFFLOADED_BYTES.inc(batch.payloads.numel())
            metrics.DROPPED_BLOCKS.labels("no_room").inc(len(batch.entries) - stored)
        self._backoff.reset()
        if self._is_failing:
            self._is_failing = False
            _logger.info("the KV store takes blocks again")

    def _fail(self, num_blocks: int, error: Exception) -> None:
        code = error.code if isinstance(error, PagewireError) else "connector_fault"
        metrics.DROPPED_BLOCKS.labels(code).inc(num_blocks)
        pause = self._backoff.next_seconds()
        self._paused_until = time.monotonic() + pause
        self._loop.call_later(pause, self._nudge)
        if not self._is_failing:
            self._is_failing = True
            _logger.warning("the KV store takes no blocks: %s", error)
