"""The threads that compute masks: fast ones for cheap masks and two slow ones for costly masks.

A step waits for cheap masks, and for costly ones only if it has nothing else to sample. A mask that
has begun cannot be stopped. So earlier costs of its grammar, or an empty credit of its tenant, send
a mask to the slow threads. One of them reads tokens. It holds the interpreter lock, so it runs at
normal priority, with long rests. The other computes the masks, at a low priority. Tenants take
turns there; within a tenant the request that has cost least comes first.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from pagewire_worker.grammars.mask_credit import Credit
from pagewire_worker.grammars.mask_jobs import MaskJob


class TenantTurns:
    """Jobs of one thread; callers hold a lock."""

    def __init__(self) -> None:
        self._jobs: list[MaskJob] = []
        self._turns: WeakKeyDictionary[Credit, int] = WeakKeyDictionary()
        self._num_turns = 0

    def push(self, job: MaskJob) -> None:
        """Add a job."""
        self._jobs.append(job)

    def pop(self) -> MaskJob | None:
        """Return the next job that is still wanted, or None."""
        self._jobs = [job for job in self._jobs if not job.is_dropped]
        if not self._jobs:
            return None
        job = min(self._jobs, key=self._place)
        self._jobs.remove(job)
        self._num_turns += 1
        self._turns[job.bill.credit] = self._num_turns
        return job

    def _place(self, job: MaskJob) -> tuple[int, float]:
        return self._turns.get(job.bill.credit, 0), job.bill.seconds


NUM_FAST_THREADS = 2
"""Beside the model thread: a mask takes some 10 microseconds, rarely milliseconds."""

LEAST_WAIT_SECONDS = 0.005
WAIT_SHARE = 1.25
"""A step waits until each fast thread has computed WAIT_SHARE times as long as its forward pass
took, and at least LEAST_WAIT_SECONDS. This is CPU time: on a busy machine no mask is late because
of a missing processor."""

SLOW_WAIT_SECONDS = 0.05
"""Longest wait of a step for slow masks, if it has nothing else to sample and no other step waits
to be run."""

SLOW_NICENESS = 10
READING_SHARE = 0.1
SHARED_READING_SHARE = 0.05
"""Share of time in which slow masks may hold the interpreter lock: alone, and beside others."""

SHARED_CORES = 0.125
"""Share of all cores that slow masks may take beside others, at most one core."""

REST_SECONDS = 0.005
"""Shorter rests are added up first."""

_POLL_SECONDS = 0.002


class MaskThreads:
    """Computes masks; all calls come from one thread.

    Attributes:
        is_hurried: Returns whether that thread has other work to do.
    """

    def __init__(self) -> None:
        self.is_hurried: Callable[[], bool] = lambda: False
        lock = threading.Lock()
        self._todo, self._done = threading.Condition(lock), threading.Condition(lock)
        self._fast: list[MaskJob] = []
        self._unread, self._read = TenantTurns(), TenantTurns()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def submit(self, jobs: Sequence[MaskJob]) -> None:
        """Start to compute `jobs`."""
        self._start()
        num_rows = Counter(id(job.grammar) for job in jobs)
        with self._todo:
            for job in jobs:
                if not self._moved(job):
                    self._fast.append(job)
            # The last job is taken first: grammars with little work do not wait for the others.
            self._fast.sort(key=lambda job: -job.grammar.mask_seconds * num_rows[id(job.grammar)])
            self._todo.notify_all()

    def fast_seconds(self) -> float:
        """Return the average CPU time of the fast threads so far."""
        if not self._threads:
            return 0.0
        fast = self._threads[:NUM_FAST_THREADS]
        return sum(map(_cpu_seconds, fast)) / len(fast)

    def wait(self, jobs: Sequence[MaskJob], until: float, *, has_others: bool) -> None:
        """Wait until the jobs are done that a step waits for.

        Args:
            until: Value of `fast_seconds` at which waiting for fast masks ends.
            has_others: Whether the step can sample other rows without masks.
        """
        deadline = time.monotonic() + SLOW_WAIT_SECONDS
        with self._done:
            while left := [job for job in jobs if not job.is_done]:
                is_fast = any(not job.is_slow for job in left)
                if is_fast and self.fast_seconds() > until:
                    return
                has_tokens = has_others or len(left) < len(jobs)
                is_over = has_tokens or time.monotonic() > deadline or self.is_hurried()
                if not is_fast and is_over:
                    return
                self._done.wait(_POLL_SECONDS)

    def charge(self, credit: Credit, seconds: float) -> None:
        """Charge CPU time that was used elsewhere."""
        with self._done:
            credit.charge(seconds, time.monotonic())

    def shutdown(self) -> None:
        """End the threads after their current masks."""
        with self._todo:
            self._over.set()
            self._todo.notify_all()
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        if self._threads:
            return
        works = [(f"masks-{index}", self._work_fast) for index in range(NUM_FAST_THREADS)]
        works += [("masks-reading", self._read_slow), ("masks-slow", self._fill_slow)]
        for name, work in works:
            # Daemons: a mask that takes long must not keep the process.
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _moved(self, job: MaskJob) -> bool:
        """Move a job to the slow threads, if it is slow."""
        if job.find_pace():
            (self._read if job.is_read else self._unread).push(job)
            self._todo.notify_all()
        return job.is_slow

    def _work_fast(self) -> None:
        while (job := self._next_fast()) is not None:
            job.read()
            if job.is_read and not job.is_done:
                job.fill()
            with self._done:
                job.charge(is_fast=True)
                if not job.is_done:
                    # It has a long output to read: other jobs go first.
                    if not self._moved(job):
                        self._fast.insert(0, job)
                        self._todo.notify_all()
                elif not self._fast:
                    self._done.notify_all()

    def _next_fast(self) -> MaskJob | None:
        with self._todo:
            while not self._over.is_set():
                while self._fast:
                    job = self._fast.pop()
                    # Its cost may have become known since it was submitted.
                    if not job.is_dropped and not self._moved(job):
                        return job
                self._done.notify_all()
                self._todo.wait()
        return None

    def _read_slow(self) -> None:
        """Read outputs; the other slow thread computes their masks."""
        owed = 0.0
        while (job := self._next(self._unread)) is not None:
            held = 0.0 if job.bill.is_exceeded else job.read()
            self._complete(job)
            share = SHARED_READING_SHARE if job.has_others else READING_SHARE
            owed = self._rest(owed + held * (1 / share - 1))

    def _fill_slow(self) -> None:
        """Compute masks of outputs that were read."""
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SLOW_NICENESS)
        share, owed = min(1.0, SHARED_CORES * (os.cpu_count() or 1)), 0.0
        while (job := self._next(self._read)) is not None:
            seconds = 0.0 if job.bill.is_exceeded else job.fill()
            self._complete(job)
            if job.has_others:
                owed = self._rest(owed + seconds * (1 / share - 1))

    def _complete(self, job: MaskJob) -> None:
        """Charge what a slow thread has done for a job, which goes on or is done."""
        with self._done:
            job.charge(is_fast=False)
            if not job.is_done:
                self._moved(job)
            self._done.notify_all()

    def _rest(self, seconds: float) -> float:
        """Rest for `seconds` unless that is too short; return the rest that is still due."""
        if seconds < REST_SECONDS:
            return seconds
        self._over.wait(seconds)
        return 0.0

    def _next(self, queue: TenantTurns) -> MaskJob | None:
        with self._todo:
            while not self._over.is_set():
                if (job := queue.pop()) is not None:
                    return job
                self._todo.wait()
        return None


def _cpu_seconds(thread: threading.Thread) -> float:
    if sys.platform != "linux" or thread.ident is None or not thread.is_alive():
        return time.monotonic()
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
