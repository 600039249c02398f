"""The thread that runs the model: jobs in through a bounded queue, results out to an event loop.

All calls of the model runner happen here, one after the other, so nothing behind it needs a lock.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")

MAX_QUEUED_JOBS = 64
"""Far above steps in flight plus audits; more means that the peer ignores the agreed depth."""


class ModelThread:
    """Runs jobs in order in one daemon thread, with gradients off.

    Args:
        loop: Where results are delivered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_QUEUED_JOBS)
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._progress = 0
        self._is_busy = False
        self._low_priority: list[Callable[[bool], bool]] = []

    @property
    def progress(self) -> int:
        """A count that advances while the thread gets on: layers computed, parts loaded."""
        return self._progress

    @property
    def is_busy(self) -> bool:
        """Whether a job runs at the moment."""
        return self._is_busy

    @property
    def has_jobs(self) -> bool:
        """Whether more jobs wait for the one that runs."""
        return not self._jobs.empty()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def advance(self) -> None:
        """Show progress; called by what runs in the thread."""
        self._progress += 1

    def post(self, job: Callable[[], None], *, may_wait: bool = False) -> None:
        """Queue `job`, which must not raise, from any thread.

        At the bound it raises queue.Full, or waits if it may.
        """
        self._jobs.put(job, block=may_wait)

    def submit(self, job: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Queue `job` and return a future of its outcome. Raises queue.Full at the bound."""
        future: asyncio.Future[Result] = self._loop.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 - belongs to whoever waits for the job
                self._deliver(future, None, error)
            else:
                self._deliver(future, result, None)

        self._jobs.put_nowait(run)
        return future

    def add_low_priority(self, turn: Callable[[bool], bool]) -> None:
        """Call `turn` once after each job, and again and again while there is none; several take
        turns.

        It is told whether the thread is idle, does a little, and returns whether there is more to
        do; it must not raise.
        """
        self._low_priority.append(turn)

    def nudge(self) -> None:
        """Let the low-priority work have a turn soon; from any thread."""
        with contextlib.suppress(queue.Full):
            self._jobs.put_nowait(_nothing)

    def stop(self, timeout_seconds: float) -> None:
        """End the thread after the job it runs, and do not wait longer than the timeout for it."""
        try:
            self._jobs.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(timeout_seconds)

    def _deliver(
        self, future: "asyncio.Future[Any]", result: object, error: BaseException | None
    ) -> None:
        def complete_job() -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(complete_job)

    def _work(self) -> None:
        with torch.inference_mode():
            while (job := self._jobs.get()) is not None:
                self._is_busy = True
                job()
                self._is_busy = False
                is_idle = self._jobs.empty()
                while self._have_turns(is_idle) and self._jobs.empty():
                    is_idle = True

    def _have_turns(self, is_idle: bool) -> bool:
        """Let all low-priority work have a turn; return whether any has more to do."""
        has_more = [turn(is_idle) for turn in self._low_priority]
        return any(has_more)


def _nothing() -> None:
    pass
