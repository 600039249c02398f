"""Runs a response that goes on without its client: the task that drives it, and the log of its
events."""

import asyncio
import logging
from collections.abc import Callable

from pagewire_frontend.http.responses.frames import frames
from pagewire_frontend.http.responses.output import Event
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.http.streaming.frame_log import FrameLog
from pagewire_shared.errors import OverloadedError, PagewireError
from pagewire_shared.exhaustion import fault_of, log_fault

_logger = logging.getLogger(__name__)


class BackgroundRun:
    """One response in the background, from its creation to its end; `on_end` is called once."""

    def __init__(
        self,
        run: ResponseRun,
        on_end: Callable[["BackgroundRun"], None],
        hold: Callable[[int], bool],
    ) -> None:
        """Create the background run.

        Args:
            on_end: Called once, at the end.
            hold: Counts bytes of events, negative ones when released; returns whether they fit.
        """
        self.run = run
        self._hold = hold
        self._num_held = self._num_counted = 0
        self.log = FrameLog()
        self._on_end = on_end
        self._is_asked = asyncio.Event()
        self._log_events(run.created())
        self._task = asyncio.create_task(self._work())
        # Not in the task: a task that is cancelled before its first step never runs.
        self._task.add_done_callback(self._end)

    async def wait_asked(self, seconds: float) -> None:
        """Wait until the engine took the request, at most `seconds`: a model may have no worker.

        Raises:
            PagewireError: The request was refused within that time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._is_asked.wait()
        except TimeoutError:
            return
        if self.run.error is not None:
            raise self.run.error

    def cancel(self) -> None:
        """End the response where it is; again is allowed."""
        self._log_events(self.run.cancel())
        self._task.cancel()

    async def _work(self) -> None:
        try:
            await self.run.open()
            self._is_asked.set()
            await self.run.wait_first()
            async for events in self.run.events():
                self._log_events(events)
                self._hold_events()
        except PagewireError as error:
            self._log_events(self.run.fail(error))

    def _end(self, task: "asyncio.Task[None]") -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            log_fault(_logger, f"the response {self.run.pending.response_id}", fault)
            failure = fault_of(fault, "the server failed on this request")
            self._log_events(self.run.fail(failure))
        self._log_events(self.run.cancel())
        self.run.close()
        self.log.end()
        self._hold(-self._num_held)
        self._is_asked.set()
        self._on_end(self)

    def _hold_events(self) -> None:
        """Count the bytes of the events so far. Raises OverloadedError where they are too many."""
        num_new = sum(map(len, self.log.since(self._num_counted)))
        if not self._hold(num_new):
            raise OverloadedError(
                "the events of running responses fill --max-stored-response-bytes; this one ends"
            )
        self._num_held += num_new
        self._num_counted = len(self.log)

    def _log_events(self, events: list[Event]) -> None:
        if self.run.pending.has_replay:
            self.log.append(frames(events))
