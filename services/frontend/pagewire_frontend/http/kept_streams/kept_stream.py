"""One stream that goes on without its client: the task that takes its events, and their log."""

import asyncio
import enum
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from pagewire_frontend.http.kept_streams.framing import SSE_FRAMING, Framing
from pagewire_frontend.http.kept_streams.ids import event_head
from pagewire_frontend.http.kept_streams.pulled import Pull, PulledSource
from pagewire_frontend.http.streaming.event_stream import TextLine
from pagewire_frontend.http.streaming.frame_log import FrameLog
from pagewire_shared.errors import OverloadedError, PagewireError
from pagewire_shared.exhaustion import fault_of, log_fault

_logger = logging.getLogger(__name__)

EVENT_BYTES: Final = 64
"""Memory of an event beside its text, about."""


class KeptState(enum.Enum):
    """State of a kept stream."""

    RUNNING = "running"
    """More events come."""
    ENDED = "ended"
    """All events are in the log."""
    DROPPED = "dropped"
    """It is not found any more."""


LEGAL_MOVES: dict[KeptState, frozenset[KeptState]] = {
    KeptState.RUNNING: frozenset({KeptState.ENDED, KeptState.DROPPED}),
    KeptState.ENDED: frozenset({KeptState.DROPPED}),
    KeptState.DROPPED: frozenset(),
}


class KeptStream:
    """The events of one answer from its beginning."""

    def __init__(
        self,
        stream_id: str,
        tenant: str | None,
        *,
        events: AsyncIterator[bytes | PulledSource],
        close: Callable[[], None],
        hold: Callable[["KeptStream", int], bool],
        has_early_error: bool = True,
        framing: Framing = SSE_FRAMING,
    ) -> None:
        """Create the stream; it takes its events at once.

        Args:
            events: Whole events as they are sent, several together, or what they are pulled from.
            close: Called once, when no more are taken.
            hold: Counts bytes of its events; returns whether they fit.
            has_early_error: An error before the first event is an event, too.
            framing: Form of the events.
        """
        self.stream_id = stream_id
        self.tenant = tenant
        self.log = FrameLog()
        self.state = KeptState.RUNNING
        self.error: PagewireError | None = None
        """Why it ended early."""
        self.num_readers = 0
        self.num_held = 0
        """Bytes that it is counted with."""
        self.expiry: asyncio.TimerHandle | None = None
        """Drops it unless it is read; its table sets and cancels it."""
        self._close = close
        self._hold = hold
        self._has_early_error = has_early_error
        self._framing = framing
        self._task = asyncio.create_task(self._take(events))
        # Not in the task: a task that is cancelled before its first step never runs.
        self._task.add_done_callback(self._end)

    def advance(self, state: KeptState) -> None:
        """Move to `state`; a move that LEGAL_MOVES lacks is a fault of the caller."""
        assert state in LEGAL_MOVES[self.state], f"{self.state.value} -> {state.value}"
        self.state = state

    def end_early(self, frames: Sequence[bytes]) -> None:
        """Take no more events, behind these last ones; it is kept."""
        # Not counted, as in _append_error.
        self.log.append(frames)
        self._task.cancel()

    def drop(self) -> None:
        """Take no more events, and free what the answer holds."""
        self.advance(KeptState.DROPPED)
        self._task.cancel()

    async def _take(self, events: AsyncIterator[bytes | PulledSource]) -> None:
        try:
            async for ready in events:
                if isinstance(ready, bytes):
                    self.append(ready)
                else:
                    await Pull(ready, self).run()
        except PagewireError as error:
            self._append_error(error)

    def append(self, ready: bytes) -> None:
        """Log whole events, as a PullSink. Raises OverloadedError: they find no room."""
        frames = self._framing.frames(self.stream_id, len(self.log), ready)
        self._count(sum(map(len, frames)) + EVENT_BYTES * len(frames))
        self.log.append(frames)

    def text_adder(self, line: TextLine) -> Callable[[str], None]:
        """Return a function that logs the event of a text; sources that are pulled are of
        server-sent events."""
        return self.log.text_adder(line, event_head(self.stream_id), self._count)

    def _count(self, num_bytes: int) -> None:
        if not self._hold(self, num_bytes):
            raise OverloadedError(
                "the events of kept streams fill --stream-journal-bytes; this one ends"
            )

    def _append_error(self, error: PagewireError) -> None:
        self.error = error
        if not len(self.log) and not self._has_early_error:
            return
        # Not counted: an answer has one at most, and it is short.
        self.log.append([self._framing.error(self.stream_id, len(self.log), error)])

    def _end(self, task: "asyncio.Task[None]") -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            log_fault(_logger, f"the stream {self.stream_id}", fault)
            self._append_error(fault_of(fault, "the server failed on this request"))
        if self.state is KeptState.RUNNING:
            self.advance(KeptState.ENDED)
        self._close()
        self.log.end()
