"""Finds what holds an event loop: a callback that runs for long keeps every stream of its process
waiting. It is logged by the name of its code, and counted.

A beat in the loop says how long it was held, and a thread looks meanwhile at what it does. What
counts is the time of the processor that the loop's thread took, or time in which it waited although
a processor was free: on a machine that is merely busy nothing is found. Costs some 60 us of a
processor per second and nothing per callback.
"""

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import Histogram

_logger = logging.getLogger(__name__)

LIMIT_SECONDS: Final = 0.05
_BEAT_SECONDS: Final = 0.02
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


@dataclass(frozen=True, slots=True)
class Moment:
    """Clocks of the loop's thread, in seconds; `delayed` is how long it waited for a processor,
    None where the system does not say."""

    wall: float
    cpu: float
    delayed: float | None


def held_seconds(before: Moment, now: Moment, seen_seconds: float) -> float:
    """Return how long something held the loop between two beats; 0 for not long enough. Pure.

    Args:
        before: The last beat.
        now: This one.
        seen_seconds: How long the watching thread, which ran in time, saw the loop stand.
    """
    cpu = now.cpu - before.cpu
    if cpu >= LIMIT_SECONDS and now.wall - before.wall >= LIMIT_SECONDS + _BEAT_SECONDS:
        return cpu
    if now.delayed is None or before.delayed is None:
        return 0.0
    # It slept, or waited for a lock: neither worked nor wanted to.
    idle = seen_seconds - (now.delayed - before.delayed)
    return idle if idle >= LIMIT_SECONDS else 0.0


class LoopWatch:
    """Watches the loop in which it is made, until `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._schedstat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._last = self._moment()
        self._seen: tuple[float, float, str] | None = None
        self._logged_at = -_LOG_SECONDS
        self._num_unlogged = 0
        # Shown from now on, as nothing found.
        self._held = held_histogram()
        self._is_over = threading.Event()
        self._timer = self._loop.call_later(_BEAT_SECONDS, self._beat)
        self._thread = threading.Thread(target=self._look, name="loop-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Watch no longer."""
        self._timer.cancel()
        self._is_over.set()

    def _beat(self) -> None:
        now, seen = self._moment(), self._seen
        seen_seconds = seen[1] - seen[0] if seen is not None else 0.0
        seconds = held_seconds(self._last, now, seen_seconds)
        if seconds:
            self._held.observe(seconds)
            self._log(seconds, seen[2] if seen is not None else "unknown", now.wall)
        self._seen = None
        self._last = now
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
        while not self._is_over.wait(_BEAT_SECONDS):
            now = time.monotonic()
            # Who comes late may have been kept from the processor, as the loop may.
            is_in_time = now - looked_at < 2 * _BEAT_SECONDS
            looked_at = now
            if now - self._last.wall < 2 * _BEAT_SECONDS:
                continue
            seen = self._seen
            if seen is not None and is_in_time:
                self._seen = seen[0], now, seen[2]
            elif seen is None:
                self._seen = now, now, self._name()

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

    def _moment(self) -> Moment:
        return Moment(time.monotonic(), time.thread_time(), self._delayed())

    def _delayed(self) -> float | None:
        try:
            return int(self._schedstat.read_bytes().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None


@contextlib.contextmanager
def watched_loop() -> Iterator[LoopWatch]:
    """Watch the running loop while inside."""
    watch = LoopWatch()
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
