"""Copies blocks on two streams beside the one that computes. Calls CUDA through CopyStreams only.

All orders are kept on the device. A copy out waits for loads and for computation enqueued before
it. A step waits for loads. A write to a block waits for copies out of the block. A load waits for
no step, since the scheduler frees blocks only when no step names them. The exceptions are steps
whose results wait for nothing or are not waited for.
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from torch import Tensor

from pagewire_worker.kv.device_copies import CopyEvent, Work

_logger = logging.getLogger(__name__)

Pin = Callable[[Tensor], Callable[[], None]]


class Stream(Enum):
    """Queues of one device that run in parallel."""

    COMPUTE = "compute"
    OUT = "out"
    IN = "in"


class CopyStreams(Protocol):
    """Interface of a device's streams. No call waits for the device."""

    def enqueue(self, stream: Stream, work: Work) -> None:
        """Call `work` with `stream` as the current one."""
        ...

    def record(self, stream: Stream) -> CopyEvent:
        """Return an event that is reached when all work enqueued so far is done."""
        ...

    def wait(self, stream: Stream, event: CopyEvent) -> None:
        """Let work that is enqueued later begin after the event."""
        ...


@dataclass(frozen=True, slots=True)
class _Leaving:
    blocks: frozenset[int]
    event: CopyEvent


class StreamCopies:
    """DeviceCopies over streams.

    Args:
        pin: See DeviceCopies.
    """

    def __init__(self, streams: CopyStreams, pin: Pin) -> None:
        self._streams = streams
        self._pin = pin
        self._leaving: deque[_Leaving] = deque()
        self._load: CopyEvent | None = None
        self._is_load_behind_steps = False
        self._calls = _CallsAfter()

    def copy_out(self, blocks: Sequence[int], work: Work) -> CopyEvent:
        computed = self._streams.record(Stream.COMPUTE)
        self._streams.wait(Stream.OUT, computed)
        self._follow_loads(Stream.OUT)
        try:
            self._streams.enqueue(Stream.OUT, work)
        finally:
            # Also after an error: a part of the work may read the blocks.
            event = self._streams.record(Stream.OUT)
            self._leaving.append(_Leaving(frozenset(blocks), event))
        return event

    def call_after(self, event: CopyEvent, then: Callable[[], None]) -> None:
        self._calls.add(event, then)

    def load(self, work: Work) -> None:
        if self._is_load_behind_steps:
            self._streams.wait(Stream.IN, self._streams.record(Stream.COMPUTE))
            self._is_load_behind_steps = False
        try:
            self._streams.enqueue(Stream.IN, work)
        finally:
            self._load = self._streams.record(Stream.IN)

    def wait_for_loads(self) -> None:
        if self._load is not None:
            self._load.synchronize()
            self._load = None

    def begin_step(self) -> None:
        self._follow_loads(Stream.COMPUTE)

    def overwrite(self, blocks: Sequence[int]) -> None:
        while self._leaving and self._leaving[0].event.query():
            self._leaving.popleft()
        wanted = frozenset(blocks)
        # All copies are on one stream, so the last one that reads a wanted block is enough.
        for leaving in reversed(self._leaving):
            if not leaving.blocks.isdisjoint(wanted):
                self._streams.wait(Stream.COMPUTE, leaving.event)
                self._streams.wait(Stream.IN, leaving.event)
                return

    def order_loads(self) -> None:
        self._is_load_behind_steps = True

    def pin(self, memory: Tensor) -> Callable[[], None]:
        return self._pin(memory)

    def close(self) -> None:
        self._calls.close()
        last = [leaving.event for leaving in self._leaving]
        last += [] if self._load is None else [self._load]
        for event in last:
            try:
                event.synchronize()
            except RuntimeError as error:
                _logger.warning("the device failed while blocks were copied: %s", error)
                return

    def _follow_loads(self, stream: Stream) -> None:
        if self._load is None:
            return
        if self._load.query():
            self._load = None
        else:
            self._streams.wait(stream, self._load)


class _CallsAfter:
    """Waits for events in its own thread, one after the other, and makes the calls for them.

    The thread starts with the first call.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[CopyEvent, Callable[[], None]] | None]
        self._calls = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="copies", daemon=True)
        self._guard = threading.Lock()
        self._is_closed = False

    def add(self, event: CopyEvent, then: Callable[[], None]) -> None:
        """Call `then` after `event` and after earlier calls; never once closed."""
        with self._guard:
            if self._is_closed:
                return
            if self._thread.ident is None:
                self._thread.start()
            self._calls.put((event, then))

    def close(self) -> None:
        """Make the remaining calls, and end the thread."""
        with self._guard:
            self._is_closed = True
            self._calls.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        has_failed = False
        while (call := self._calls.get()) is not None:
            event, then = call
            try:
                event.synchronize()
                then()
            except Exception:
                # The device failed, or the event loop has ended. The copied blocks are dropped;
                # steps report the fault of the device.
                if not has_failed:
                    has_failed = True
                    _logger.exception("blocks that were copied out go nowhere")
