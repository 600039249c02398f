"""Finds what holds an event loop: a callback that runs for long keeps every stream of its process
waiting. It is logged by the name of its code, and counted.

A beat in the loop says how long it was held, and a thread looks meanwhile at what it does. What
counts is the time of the processor that the loop's thread took, or time in which it waited although
a processor was free: on a machine that is merely busy nothing is found. Costs nothing
per callback, and 70 wake-ups a second.
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


@cache
def held_histogram() -> "Histogram":
    """Return the metric of what was found; prometheus-client comes with every role's extra."""
    from prometheus_client import Histogram

    return Histogram(
        "pagewire_event_loop_held_seconds",
        "How long callbacks held the event loop, of those that held it for 50 ms or longer",
        buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
    )


@dataclass(slots=True)
class Sight:
    """What the watching thread saw of a loop that stood, in seconds of time.monotonic().

    Attributes:
        name: Of the code that it ran.
        began_at: When that was seen first.
        ended_at: When it was seen last by a thread that ran in time itself.
        delayed: How long the loop's thread had waited for a processor by then; None where the
            system does not say.
    """

    name: str
    began_at: float
    ended_at: float
    delayed: float | None


def held_seconds(
    wall: float, cpu: float, sight: Sight | None = None, delayed: float | None = None
) -> float:
    """Return how long something held the loop between two beats; 0 for not long enough. Pure.

    Args:
        wall: Seconds between the beats.
        cpu: Those of them in which the loop's thread had a processor.
        sight: What was seen meanwhile.
        delayed: How long the thread has waited for a processor, by the same clock as in `sight`.
    """
    if cpu >= LIMIT_SECONDS and wall >= LIMIT_SECONDS + _BEAT_SECONDS:
        return cpu
    if sight is None or sight.delayed is None or delayed is None:
        return 0.0
    # It slept, or waited for a lock: neither worked nor wanted to.
    idle = sight.ended_at - sight.began_at - (delayed - sight.delayed)
    return idle if idle >= LIMIT_SECONDS else 0.0


class LoopWatch:
    """Watches the loop in which it is made, until `close`.

    Args:
        is_serving: Whether anybody could notice: what a process does before it is ready holds up
            nobody, and is not counted.
    """

    def __init__(self, is_serving: Callable[[], bool] = lambda: True) -> None:
        self._is_serving = is_serving
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._last_beat, self._last_cpu = time.monotonic(), time.thread_time()
        self._sight: Sight | None = None
        self._logged_at = -_LOG_SECONDS
        self._num_unlogged = 0
        self._is_over = False
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        self._is_over = True

    def _beat(self) -> None:
        now, cpu, sight = time.monotonic(), time.thread_time(), self._sight
        # Made by the first beat, when the role has seen whether its packages are there: shown from
        # then on, as nothing found.
        held = held_histogram()
        delayed = self._delayed() if sight is not None else None
        seconds = held_seconds(now - self._last_beat, cpu - self._last_cpu, sight, delayed)
        if seconds and self._is_serving():
            held.observe(seconds)
            self._log(seconds, sight.name if sight is not None else "unknown", now)
        self._sight = None
        self._last_beat, self._last_cpu = now, cpu
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)

    def _log(self, seconds: float, name: str, now: float) -> None:
        if now - self._logged_at < _LOG_SECONDS:
            self._num_unlogged += 1
            return
        more = f", and {self._num_unlogged} more since" if self._num_unlogged else ""
        _logger.warning("the event loop was held for %.0f ms: %s%s", seconds * 1e3, name, more)
        self._logged_at, self._num_unlogged = now, 0

    def _look(self) -> None:
        looked_at = time.monotonic()
        while not self._is_over:
            # Not an event with a time-out, which costs three times as much.
            time.sleep(_BEAT_SECONDS)
            now = time.monotonic()
            # Who comes late may have been kept from the processor, as the loop may.
            is_in_time = now - looked_at < 2 * _BEAT_SECONDS
            looked_at = now
            if now - self._last_beat < 2 * _BEAT_SECONDS:
                continue
            sight = self._sight
            if sight is None:
                self._sight = Sight(self._name(), now, now, self._delayed())
            elif is_in_time:
                sight.ended_at = now

    def _name(self) -> str:
        """Return what the loop's thread runs: names of code, and nothing of what clients sent."""
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
def watched_loop(is_serving: Callable[[], bool] = lambda: True) -> Iterator[LoopWatch]:
    """Watch the running loop while inside; see LoopWatch."""
    watch = LoopWatch(is_serving)
    try:
        yield watch
    finally:
        watch.close()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    module = frame.f_globals.get("__name__", "?")
    return f"{module}.{frame.f_code.co_qualname}"
