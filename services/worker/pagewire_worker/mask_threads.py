"""The threads that compute masks: some for grammars whose masks are cheap, which steps wait for,
and one for the others, which a step that has anything else to sample does not wait for.

A mask that has begun cannot be stopped. So a grammar comes to the slow thread by what its masks
have cost before. That thread has a low priority, serves the request first that has cost least, and
rests in between, since reading a token holds the interpreter lock.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from pagewire_worker.mask_jobs import MaskJob

NUM_FAST_THREADS = 2
"""Beside the model's own: a mask takes some 10 microseconds, rarely milliseconds."""

LEAST_WAIT_SECONDS = 0.005
WAIT_SHARE = 1.25
"""A step waits until each fast thread has computed that much longer than its forward pass took, and
at least so long. This is CPU time: on a busy machine nothing is late for want of a processor."""

SLOW_WAIT_SECONDS = 0.05
"""How long a step waits for slow masks when it has nothing else to sample, and no other step is
there to be run."""

SLOW_NICENESS = 10
REST_SHARE = 9.0
"""The slow thread rests that many times as long as it has held the interpreter lock, above"""

FREE_SECONDS = 0.0005

_POLL_SECONDS = 0.002


class MaskThreads:
    """Computes masks; all calls come from one thread.

    Attributes:
        is_hurried: Says whether that thread has other work to do.
    """

    def __init__(self) -> None:
        self.is_hurried: Callable[[], bool] = lambda: False
        lock = threading.Lock()
        self._todo, self._done = threading.Condition(lock), threading.Condition(lock)
        self._fast: list[MaskJob] = []
        self._slow: list[MaskJob] = []
        self._is_over = False
        self._threads: list[threading.Thread] = []

    def submit(self, jobs: Sequence[MaskJob]) -> None:
        """Begin with `jobs`."""
        self._start()
        num_rows = Counter(id(job.grammar) for job in jobs)
        with self._todo:
            for job in jobs:
                (self._slow if job.grammar.is_slow else self._fast).append(job)
            # The last is taken first: grammars with little to do do not wait for the others.
            self._fast.sort(key=lambda job: -job.grammar.mask_seconds * num_rows[id(job.grammar)])
            self._todo.notify_all()

    def fast_seconds(self) -> float:
        """Return the CPU time that the fast threads have taken so far, each on average."""
        if not self._threads:
            return 0.0
        fast = self._threads[:NUM_FAST_THREADS]
        return sum(map(_cpu_seconds, fast)) / len(fast)

    def wait(self, jobs: Sequence[MaskJob], until: float, *, has_others: bool) -> None:
        """Wait until those of `jobs` are done that a step waits for.

        Args:
            jobs: All of the step.
            until: The step waits for fast ones no longer than until `fast_seconds` is this.
            has_others: Whether the step has something to sample without them.
        """
        deadline = time.monotonic() + SLOW_WAIT_SECONDS
        with self._done:
            while left := [job for job in jobs if not job.is_done]:
                is_fast = any(not job.grammar.is_slow for job in left)
                if is_fast and self.fast_seconds() > until:
                    return
                has_tokens = has_others or len(left) < len(jobs)
                is_over = has_tokens or time.monotonic() > deadline or self.is_hurried()
                if not is_fast and is_over:
                    return
                self._done.wait(_POLL_SECONDS)

    def shutdown(self) -> None:
        """End the threads after what they compute."""
        with self._todo:
            self._is_over = True
            self._todo.notify_all()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        if self._threads:
            return
        works = [(f"masks-{index}", self._work_fast) for index in range(NUM_FAST_THREADS)]
        for name, work in (*works, ("masks-slow", self._work_slow)):
            # Daemons: a mask that takes long must not keep the process.
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work_fast(self) -> None:
        while (job := self._next_fast()) is not None:
            job.advance()
            with self._done:
                if not job.is_done:
                    # It has a long output to read: others first, and it is in nobody's way.
                    (self._slow if job.grammar.is_slow else self._fast).insert(0, job)
                    self._todo.notify_all()
                elif not self._fast:
                    self._done.notify_all()

    def _next_fast(self) -> MaskJob | None:
        with self._todo:
            while not self._is_over:
                while self._fast:
                    job = self._fast.pop()
                    if job.grammar.is_slow:  # found out since it was submitted
                        self._slow.append(job)
                        self._todo.notify_all()
                    elif not job.is_dropped:
                        return job
                self._done.notify_all()
                self._todo.wait()
        return None

    def _work_slow(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SLOW_NICENESS)
        while (job := self._next_slow()) is not None:
            held = 0.0
            if not job.bill.is_exceeded:
                held = job.advance()
            job.charge()
            with self._done:
                if not job.is_done:
                    self._slow.append(job)
                self._done.notify_all()
            if held > FREE_SECONDS:
                time.sleep(held * REST_SHARE)

    def _next_slow(self) -> MaskJob | None:
        with self._todo:
            while not self._is_over:
                self._slow = [job for job in self._slow if not job.is_dropped]
                if self._slow:
                    job = min(self._slow, key=lambda job: job.bill.seconds)
                    self._slow.remove(job)
                    return job
                self._todo.wait()
        return None


def _cpu_seconds(thread: threading.Thread) -> float:
    if sys.platform != "linux" or thread.ident is None or not thread.is_alive():
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
