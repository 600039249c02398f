"""Detects callbacks that block an event loop, counts them and logs the name of their code.

A thread looks at the loop's thread. While that runs code, the thread asks for beats: callbacks that
measure the time since the last turn of the loop that is known. A loop that waits is left alone.
Only two times count: CPU time of the loop's thread, and time in which it slept although a
processor was free. A machine that is merely busy is thus not reported. The watch costs nothing per
callback, and 33 wake-ups a second: twice as many while the loop runs code.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import Histogram

_logger = logging.getLogger(__name__)

LIMIT_SECONDS: Final = 0.05
_BEAT_SECONDS: Final = 0.03
_LOG_SECONDS: Final = 1.0
_OURS: Final = "pagewire_"
_WAITING: Final = ("asyncio.base_events", "asyncio.runners", "selectors", "uvloop")
"""Modules whose code is the innermost of a thread while its loop waits for events."""
_WAITING_CPU_SECONDS: Final = 0.005
"""CPU time between two looks with which a loop that seems to wait has run code without a frame."""


@cache
def held_histogram() -> "Histogram":
    """Return the metric of blocking times; prometheus-client comes with every role's extra."""
    from prometheus_client import Histogram

    return Histogram(
        "pagewire_event_loop_held_seconds",
        "How long callbacks held the event loop, of those that held it for 50 ms or longer",
        buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    )


@dataclass(slots=True)
class Sight:
    """A blocked loop as the watching thread saw it, in seconds of time.monotonic().

    Attributes:
        name: Name of the code that the loop ran.
        began_at: Time when the thread saw it first.
        ended_at: Time of the last look for which the thread itself was not late.
        delayed: Seconds that the loop's thread had waited for a processor until `began_at`; None
            where the system does not report it.
    """

    name: str
    began_at: float
    ended_at: float
    delayed: float | None


def held_seconds(
    wall: float, cpu: float, sight: Sight | None = None, delayed: float | None = None
) -> float:
    """Return the seconds for which code blocked the loop before a beat; 0 if below the limit.

    Args:
        wall: Seconds from the last turn that is known to the beat.
        cpu: CPU seconds of the loop's thread in that time.
        sight: The blocked loop, if the watching thread saw it.
        delayed: Seconds that the thread has waited for a processor, by the clock of `sight`.
    """
    if cpu >= LIMIT_SECONDS and wall >= LIMIT_SECONDS + _BEAT_SECONDS:
        return cpu
    if sight is None or sight.delayed is None or delayed is None:
        return 0.0
    # Time in which the thread slept or waited for a lock.
    idle = sight.ended_at - sight.began_at - (delayed - sight.delayed)
    return idle if idle >= LIMIT_SECONDS else 0.0


class LoopWatch:
    """Watches the running loop, until `close`.

    Args:
        is_serving: Whether the process is ready; earlier blocking delays no request and is not
            counted.
        is_stopping: Whether the process ends; blocking is counted then, and logged as information:
            to close channels and memory takes long, and few requests are left to delay.
    """

    def __init__(
        self,
        is_serving: Callable[[], bool] = lambda: True,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_serving = is_serving
        self._is_stopping = is_stopping
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._cpu_clock: int | None = None
        if hasattr(time, "pthread_getcpuclockid"):
            self._cpu_clock = time.pthread_getcpuclockid(self._thread_id)
        # The last turn of the loop that is known. The thread writes them only while no beat is due.
        self._turned_at, self._cpu = time.monotonic(), time.thread_time()
        self._is_beat_due = False
        self._sight: Sight | None = None
        self._logged_at = -_LOG_SECONDS
        self._num_unlogged = 0
        self._is_over = False
        self._was_serving = is_serving()
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._is_over = True

    def _beat(self) -> None:
        now, cpu, sight = time.monotonic(), time.thread_time(), self._sight
        # Created by the first beat, after the role has checked its packages; shows zero at first.
        held = held_histogram()
        delayed = self._delayed() if sight is not None else None
        seconds = held_seconds(now - self._turned_at, cpu - self._cpu, sight, delayed)
        was_serving, self._was_serving = self._was_serving, self._is_serving()
        # The process may have become ready since the beat before, after what held the loop.
        if seconds and was_serving and self._was_serving:
            held.observe(seconds)
            self._log(seconds, sight.name if sight is not None else "unknown", now)
        self._sight = None
        self._turned_at, self._cpu = now, cpu
        self._is_beat_due = False

    def _log(self, seconds: float, name: str, now: float) -> None:
        if now - self._logged_at < _LOG_SECONDS:
            self._num_unlogged += 1
            return
        more = f", and {self._num_unlogged} more since" if self._num_unlogged else ""
        level = logging.INFO if self._is_stopping() else logging.WARNING
        text = "the event loop was held for %.0f ms: %s%s"
        _logger.log(level, text, seconds * 1e3, name, more)
        self._logged_at, self._num_unlogged = now, 0

    def _look(self) -> None:
        looked_at = time.monotonic()
        while not self._is_over:
            # An event with a time-out would cost three times as much.
            time.sleep(_BEAT_SECONDS)
            now = time.monotonic()
            # A late look means that this thread, and maybe the loop, had no processor.
            is_in_time = now - looked_at < 2 * _BEAT_SECONDS
            looked_at = now
            if not self._is_beat_due:
                self._ask_unless_waiting(now)
            elif now - self._turned_at >= 2 * _BEAT_SECONDS:
                self._see(now, is_in_time=is_in_time)

    def _ask_unless_waiting(self, now: float) -> None:
        if self._cpu_clock is not None:
            cpu = time.clock_gettime(self._cpu_clock)
            if cpu - self._cpu < _WAITING_CPU_SECONDS and self._seems_to_wait():
                self._turned_at, self._cpu = now, cpu
                self._was_serving = self._is_serving()
                return
        self._is_beat_due = True
        # A loop that was closed is watched no more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._beat)

    def _seems_to_wait(self) -> bool:
        frame = sys._current_frames().get(self._thread_id)
        return frame is None or frame.f_globals.get("__name__") in _WAITING

    def _see(self, now: float, *, is_in_time: bool) -> None:
        sight = self._sight
        if sight is None:
            self._sight = Sight(self._name(), now, now, self._delayed())
        elif is_in_time:
            sight.ended_at = now

    def _name(self) -> str:
        """Return the name of the code that the loop's thread runs, without data of clients."""
        frame = sys._current_frames().get(self._thread_id)
        task = None
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task(self._loop)
        names = [_place(item) for item in _frames(frame)]
        ours = [name for name in names if name.startswith(_OURS)]
        place = (ours or names or ["unknown"])[0]
        coroutine = getattr(task.get_coro(), "__qualname__", "") if task is not None else ""
        return f"{place}, in the task {coroutine}" if coroutine else place

    def _delayed(self) -> float | None:
        try:
            return int(self._schedstat.read_bytes().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None


@contextlib.contextmanager
def watched_loop(
    is_serving: Callable[[], bool] = lambda: True, is_stopping: Callable[[], bool] = lambda: False
) -> Iterator[LoopWatch]:
    """Watch the running loop while inside; see LoopWatch."""
    watch = LoopWatch(is_serving, is_stopping)
    try:
        yield watch
    finally:
        watch.close()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and its callers."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{frame.f_code.co_qualname}"
