"""The common part of all loads: read in the event loop, and write in the model thread beside it.

A job writes the data that has arrived when it runs, up to a bound, so a load waits for few steps.
Once the load is closed none of its jobs writes any more, not even a queued one.
"""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from pagewire_shared.errors import DeadlineError, PagewireError
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_shared.process.cancellation import is_cancelled

_logger = logging.getLogger(__name__)

Submit = Callable[[Callable[[], int]], "asyncio.Future[int]"]
"""Queues a job for the model thread. Raises queue.Full."""


class LoadRun(ABC):
    """One order until its answer.

    Args:
        submit: See Submit.
    """

    def __init__(self, order: LoadOrder, submit: Submit) -> None:
        self._order = order
        self._submit = submit
        self._started = time.monotonic()
        self._num_bytes = 0
        self._last_seconds = 0.0
        self._num_written = 0
        self._has_news = asyncio.Event()
        self._is_cancelled = asyncio.Event()
        self._guard = threading.Lock()
        self._is_over = False
        self._job: asyncio.Future[int] | None = None
        self._is_job_running = False

    def cancel(self) -> None:
        """Let `run` answer soon with the blocks that are written."""
        self._is_cancelled.set()

    async def run(self) -> LoadAnswer:
        """Load until the end of the order's time at most. If cancelled, write nothing more."""
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
            # Its exception has no other reader, and does not matter any more.
            await asyncio.gather(self._job, return_exceptions=True)
        if self._num_written == len(self._order.names):
            outcome = LoadOutcome.COMPLETE
        return self._answer(outcome)

    @abstractmethod
    async def _read(self) -> None:
        """Read until no more data comes, and call `_note_bytes` for each part."""

    @property
    @abstractmethod
    def _has_arrived(self) -> bool:
        """Whether data waits to be written."""

    @abstractmethod
    def _write_some(self) -> int:
        """Write some of the data that has arrived, in the model thread.

        Returns the number of parts written. Sets `_num_written` to the named prefix of blocks.
        """

    @abstractmethod
    def _after_write(self, count: int) -> None:
        """Continue reading after `count` parts were written."""

    @abstractmethod
    def _answer(self, outcome: LoadOutcome) -> LoadAnswer:
        """Return the answer with this outcome."""

    @property
    def _seconds(self) -> float:
        """Seconds from the order to the last byte that came."""
        return self._last_seconds or time.monotonic() - self._started

    def _note_bytes(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        self._last_seconds = time.monotonic() - self._started
        self._has_news.set()

    def _close(self) -> bool:
        """Let no further job write; return whether a job writes now, which soon ends."""
        with self._guard:
            self._is_over = True
            return self._is_job_running

    async def _work(self) -> LoadOutcome:
        """Read and write in parallel until no more data comes and all is written."""
        reading = asyncio.create_task(self._read())
        try:
            while not (reading.done() and not self._has_arrived):
                if not self._has_arrived:
                    await self._wait_for_news(reading)
                    continue
                self._job = self._submit(self._write_unless_over)
                self._after_write(await asyncio.shield(self._job))
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
            # A fault of a foreign connector, or a full queue of jobs: only this load fails.
            _logger.exception("load %d failed", self._order.load_id)
            return LoadOutcome.FAILED
        finally:
            reading.cancel()

    async def _wait_for_news(self, reading: "asyncio.Task[None]") -> None:
        self._has_news.clear()
        news = asyncio.create_task(self._has_news.wait())
        try:
            await asyncio.wait((reading, news), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()

    def _write_unless_over(self) -> int:
        """Write some of the data that has arrived; in the model thread."""
        with self._guard:
            if self._is_over:
                return 0
            self._is_job_running = True
        try:
            return self._write_some()
        finally:
            with self._guard:
                self._is_job_running = False
