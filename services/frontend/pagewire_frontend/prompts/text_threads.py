"""Threads for long texts: bounded by bytes, fair between tenants. Very long texts have a lane of
their own, so that they do not delay shorter ones. The work in the threads releases the interpreter
lock."""

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from pagewire_frontend.prompts.fair_queue import FairQueue
from pagewire_frontend.prompts.text_budget import TextBudget
from pagewire_shared.process.allocator import give_back_free_memory

NUM_SHORT_THREADS: Final = 2
LONG_BYTES: Final = 256 * 1024
"""From this size on texts are worked on one at a time: tokenizing takes some 115 bytes of memory
for each character."""
MAX_OVERTAKING: Final = 64
"""Short texts that are worked on at once, in the event loop, although others wait for a thread,
until one of the waiting had its turn."""

Result = TypeVar("Result")


class TextThreads:
    """Works on texts in threads. `close` it at the end.

    Args:
        max_bytes: Bytes of memory of texts that wait or are worked on.
        what: Subject of the error: the texts, and the part that they wait for.
    """

    def __init__(self, max_bytes: int, what: str = "texts wait for the tokenizer") -> None:
        self.budget = TextBudget(max_bytes, what)
        self._short = _Lane("text", NUM_SHORT_THREADS, self.budget)
        self._long = _Lane("long-text", 1, self.budget)
        self._num_overtaking = 0
        self._num_begun = 0

    @property
    def num_waiting(self) -> int:
        """Texts that wait for a thread."""
        return self._short.num_waiting + self._long.num_waiting

    def may_overtake(self) -> bool:
        """Return whether one more short text may be worked on at once by its caller."""
        if not self.num_waiting:
            return True
        num_begun = self._short.num_begun + self._long.num_begun
        if num_begun != self._num_begun:
            self._num_begun, self._num_overtaking = num_begun, 0
        self._num_overtaking += 1
        return self._num_overtaking <= MAX_OVERTAKING

    async def run(self, tenant: str | None, num_bytes: int, work: Callable[[], Result]) -> Result:
        """Return what `work` returns. Work that is cancelled while it waits never begins.

        Args:
            num_bytes: Bytes of memory of the text.

        Raises:
            OverloadedError: Too many bytes wait already.
        """
        lane = self._long if num_bytes >= LONG_BYTES else self._short
        result: Result = await lane.put(tenant, num_bytes, work)
        return result

    def close(self) -> None:
        """Begin nothing more."""
        self._short.close()
        self._long.close()


def size_of(text: str) -> int:
    """Return the bytes of memory that a text takes, without reading it."""
    return sys.getsizeof(text)


@dataclass(slots=True, eq=False)
class _Job:
    tenant: str | None
    num_bytes: int
    work: Callable[[], Any]
    done: "asyncio.Future[Any]"


class _Lane:
    """A queue in front of a number of threads."""

    def __init__(self, name: str, num_threads: int, budget: TextBudget) -> None:
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix=name)
        self._num_idle = num_threads
        self._budget = budget
        self._queue: FairQueue[_Job] = FairQueue()
        self.num_begun = 0

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    def put(
        self, tenant: str | None, num_bytes: int, work: Callable[[], Any]
    ) -> "asyncio.Future[Any]":
        self._budget.take(tenant, num_bytes)
        job = _Job(tenant, num_bytes, work, asyncio.get_running_loop().create_future())
        job.done.add_done_callback(lambda _: self._leave(job))
        self._queue.put(tenant, job)
        self._begin()
        return job.done

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _leave(self, job: _Job) -> None:
        # Cancelled before its turn; a job under way holds its memory until it ends.
        if self._queue.discard(job.tenant, job):
            self._budget.give(job.tenant, job.num_bytes)

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        while self._num_idle and len(self._queue):
            job = self._queue.pop()
            self._num_idle -= 1
            self.num_begun += 1
            running = loop.run_in_executor(self._threads, _do, job)
            running.add_done_callback(partial(self._end, job))

    def _end(self, job: _Job, ended: "asyncio.Future[Any]") -> None:
        self._num_idle += 1
        self._budget.give(job.tenant, job.num_bytes)
        if ended.cancelled():
            job.done.cancel()
        elif (error := ended.exception()) is not None:
            if not job.done.done():
                job.done.set_exception(error)
        elif not job.done.done():
            job.done.set_result(ended.result())
        if len(self._queue):
            self._begin()


def _do(job: _Job) -> Any:
    try:
        return job.work()
    finally:
        if job.num_bytes >= LONG_BYTES:
            # The allocator keeps the memory of such a text; the next may come in an hour.
            give_back_free_memory()
