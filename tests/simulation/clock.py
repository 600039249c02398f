"""Time that passes only when it is told to: a clock, an event loop for the callbacks of one
process, and a stand-in for the time module. Owns no process."""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pagewire_frontend.scheduler.link
import pagewire_frontend.session.session
import pagewire_scheduler.links.generation

EPOCH_SECONDS = 1_000_000.0


class Clock:
    """Seconds since the start of a world."""

    def __init__(self) -> None:
        self.now = 0.0


class VirtualTime:
    """What the code under test calls `time`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return self._clock.now

    def perf_counter(self) -> float:
        return self._clock.now

    def time_ns(self) -> int:
        return int((EPOCH_SECONDS + self._clock.now) * 1e9)


class VirtualFuture:
    """As much of a future as queries, waiters and the loop's `failure` need."""

    def __init__(self) -> None:
        self._is_done = False
        self._exception: BaseException | None = None
        self._result: object = None

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return False

    def cancel(self, msg: object = None) -> bool:
        self._is_done = True
        return True

    def set_result(self, result: object) -> None:
        self._is_done, self._result = True, result

    def set_exception(self, error: BaseException) -> None:
        self._is_done, self._exception = True, error

    def exception(self) -> BaseException | None:
        return self._exception

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        pass

    def __await__(self) -> Generator["VirtualFuture", None, object]:
        if not self._is_done:
            yield self
        return self._result


class Handle:
    """A callback that can be taken back."""

    __slots__ = ("_call", "_is_cancelled")

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def run(self) -> None:
        if not self._is_cancelled:
            self._call()


class VirtualLoop:
    """The event loop of one process; it dies with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self._clock.now

    def get_debug(self) -> bool:
        return False

    def call_soon(self, call: Callable[..., object], *args: Any, context: Any = None) -> Handle:
        handle = Handle(lambda: call(*args))
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> Handle:
        handle = Handle(lambda: call(*args))
        heapq.heappush(self._timers, (self._clock.now + delay, next(self._order), handle))
        return handle

    def create_future(self) -> VirtualFuture:
        return VirtualFuture()

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> VirtualFuture:
        # Only notices to waiters that no simulation has.
        coroutine.close()
        return VirtualFuture()

    def enter(self) -> None:
        """Be the running loop from now on."""
        asyncio._set_running_loop(self)  # type: ignore[arg-type]

    def drain(self) -> None:
        """Run what is ready and what is due."""
        self.enter()
        while True:
            while self._ready:
                self._ready.popleft().run()
            if not self._timers or self._timers[0][0] > self._clock.now:
                return
            self._ready.append(heapq.heappop(self._timers)[2])


@contextmanager
def virtual_time(clock: Clock) -> Iterator[None]:
    """Let the code under test read `clock`, and leave no running loop behind."""
    fake = VirtualTime(clock)
    with (
        mock.patch.object(pagewire_frontend.session.session, "time", fake),
        mock.patch.object(pagewire_frontend.scheduler.link, "time", fake),
        mock.patch.object(pagewire_scheduler.links.generation, "time", fake),
    ):
        try:
            yield
        finally:
            asyncio._set_running_loop(None)
