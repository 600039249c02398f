"""A device whose streams run when a test says so: what is enqueued is kept until then."""

import random
import threading
import time
from collections import deque
from contextlib import contextmanager

from pagewire_worker.kv.stream_copies import Stream

SECONDS = 20.0


class FakeEvent:
    """A point in a stream."""

    def __init__(self, streams):
        self._streams = streams
        self._is_done = threading.Event()

    def query(self):
        return self._is_done.is_set()

    def set(self):
        self._is_done.set()

    def synchronize(self):
        if threading.current_thread() is self._streams.driver:
            self._streams.run_until(self.query)
        assert self._is_done.wait(SECONDS), "an event never came"


class FakeStreams:
    """Streams that the thread of the test runs, in an order drawn by dice."""

    def __init__(self, seed=0):
        self.driver = threading.current_thread()
        self.dice = random.Random(seed)
        self._queues = {stream: deque() for stream in Stream}
        self._guard = threading.RLock()

    def enqueue(self, stream, work):
        self._queues[stream].append(work)

    def record(self, stream):
        event = FakeEvent(self)
        self._queues[stream].append(event.set)
        return event

    def wait(self, stream, event):
        self._queues[stream].append(event)

    def run_one(self):
        """Run the next of what some stream has; return whether there was any."""
        with self._guard:
            ready = [stream for stream in Stream if self._is_ready(self._queues[stream])]
            if not ready:
                return False
            work = self._queues[self.dice.choice(ready)].popleft()
            if not isinstance(work, FakeEvent):
                work()
            return True

    def run_until(self, condition):
        while not condition():
            assert self.run_one(), "the streams wait for each other, or for nothing"

    def run_all(self):
        while self.run_one():
            pass
        assert not any(self._queues.values()), "a stream waits for an event that never comes"

    def _is_ready(self, queue):
        return bool(queue) and (not isinstance(queue[0], FakeEvent) or queue[0].query())


class PumpedStreams(FakeStreams):
    """Streams for copies alone, that run by themselves unless they are held up; what computes is
    the caller, who waits where the device would."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.driver = None
        self._is_over = threading.Event()
        self._may_run = threading.Event()
        self._may_run.set()
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def wait(self, stream, event):
        if stream is Stream.COMPUTE:
            event.synchronize()
        else:
            super().wait(stream, event)

    @contextmanager
    def held_up(self):
        """Let no copy run meanwhile."""
        self._may_run.clear()
        with self._guard:
            pass  # what runs is done
        try:
            yield
        finally:
            self._may_run.set()

    def close(self):
        self._is_over.set()
        self._may_run.set()
        self._thread.join(SECONDS)

    def _pump(self):
        while not self._is_over.is_set():
            self._may_run.wait()
            if not self.run_one():
                time.sleep(0.001)
