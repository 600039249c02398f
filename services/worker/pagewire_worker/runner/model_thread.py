"""The thread that runs the model: takes jobs from a bounded queue, delivers to an event loop.

All calls of the model runner happen in this thread, so the model runner needs no lock.
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
"""Far above steps in flight plus audits: a longer queue means a peer that ignores the depth."""


class ModelThread:
    """Runs jobs in order in one daemon thread, with gradients off."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(MAX_QUEUED_JOBS)
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._progress = 0
        self._is_busy = False
        self._low_priority: list[Callable[[bool], bool]] = []

    @property
    def progress(self) -> int:
        """A count that advances with every computed layer and loaded part."""
        return self._progress

    @property
    def is_busy(self) -> bool:
        """Whether a job runs now."""
        return self._is_busy

    @property
    def has_jobs(self) -> bool:
        """Whether jobs wait behind the running one."""
        return not self._jobs.empty()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def advance(self) -> None:
        """Count progress; called by jobs in the thread."""
        self._progress += 1

    def post(self, job: Callable[[], None], *, may_wait: bool = False) -> None:
        """Queue `job`, which must not raise, from any thread.

        With a full queue it raises queue.Full, or waits if `may_wait`.
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
            except BaseException as error:  # noqa: BLE001 - raised from the future instead
                self._deliver(future, None, error)
            else:
                self._deliver(future, result, None)

        self._jobs.put_nowait(run)
        return future

    def add_low_priority(self, turn: Callable[[bool], bool]) -> None:
        """Call `turn` after each job, and repeatedly while the queue is empty.

        Several turns are called one after the other. `turn` gets whether the thread is idle, does
        a little work, and returns whether work is left. It must not raise.
        """
        self._low_priority.append(turn)

    def drop_low_priority(self) -> None:
        """Forget all low-priority work. Called by a job in the thread."""
        self._low_priority.clear()

    def nudge(self) -> None:
        """Wake the thread for its low-priority work; from any thread."""
        with contextlib.suppress(queue.Full):
            self._jobs.put_nowait(_nothing)

    def stop(self, timeout_seconds: float) -> None:
        """End the thread after its current job; wait for at most the timeout."""
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
        """Call all low-priority work once; return whether any work is left."""
        has_more = [turn(is_idle) for turn in self._low_priority]
        return any(has_more)


def _nothing() -> None:
    pass
