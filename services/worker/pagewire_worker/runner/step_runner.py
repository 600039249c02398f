"""Runs plans in the model thread and delivers results in the order of the plans.

The next step is launched while the device works on the one before.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.runner.plan_runner import PlanRunner
from pagewire_worker.runner.step_in_flight import StepInFlight


class RunStep(NamedTuple):
    """A step that was run. `seconds` counts from its launch or from the end of the step before."""

    plan: StepPlan
    result: StepResult
    seconds: float


class _Launched(NamedTuple):
    in_flight: StepInFlight
    received: float
    began: float


class StepRunner:
    """Runs the plans of one attach.

    If a launch returns before its step is done, a second thread waits for the device. The model
    thread is then free to launch the next step.

    Args:
        model_runner: Runs plans, in `thread` only.
        loop: Event loop in which the callbacks are called.
        on_result: Called for each step, in order.
        on_failure: Called when the device is lost, or when a step fails in a way that no result
            can report.
    """

    def __init__(
        self,
        *,
        model_runner: PlanRunner,
        thread: ModelThread,
        loop: asyncio.AbstractEventLoop,
        on_result: Callable[[RunStep], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._model_runner = model_runner
        self._thread = thread
        self._loop = loop
        self._on_result = on_result
        self._on_failure = on_failure
        self._is_over = False
        self._last_ended = 0.0
        self._num_under_way = 0
        self._under_way: queue.SimpleQueue[_Launched | None] = queue.SimpleQueue()
        self._waiter: threading.Thread | None = None

    def run(self, plan: StepPlan) -> None:
        """Queue a plan. Raises queue.Full when the peer ignores the agreed depth by far."""
        received = time.perf_counter()
        self._thread.post(lambda: self._guard(lambda: self._launch(plan, received)))

    def close(self) -> None:
        """Launch no more plans, and call no callback."""
        self._is_over = True
        self._under_way.put(None)

    def _launch(self, plan: StepPlan, received: float) -> None:
        if self._is_over:
            return
        began = time.perf_counter()
        launched = _Launched(self._model_runner.launch(plan), received, began)
        if self._num_under_way == 0 and launched.in_flight.is_done:
            self._collect(launched)
            return
        self._num_under_way += 1
        if self._waiter is None:
            self._waiter = threading.Thread(target=self._wait, name="device", daemon=True)
            self._waiter.start()
        self._under_way.put(launched)

    def _wait(self) -> None:
        """Wait for one step after the other, in a thread of its own."""
        while (launched := self._under_way.get()) is not None:
            # `collect` meets the same error, and explains it.
            with contextlib.suppress(RuntimeError):
                launched.in_flight.wait()
            self._thread.post(self._collecting(launched), may_wait=True)

    def _collecting(self, launched: _Launched) -> Callable[[], None]:
        def collect() -> None:
            self._num_under_way -= 1
            self._guard(lambda: self._collect(launched))

        return collect

    def _collect(self, launched: _Launched) -> None:
        result = self._model_runner.collect(launched.in_flight)
        ended = time.perf_counter()
        result = replace(result, step_time_us=int((ended - launched.received) * 1e6))
        seconds = ended - max(launched.began, self._last_ended)
        self._last_ended = ended
        step = RunStep(launched.in_flight.plan, result, seconds)
        self._notify(lambda: self._on_result(step))
        # The next plan is waited for meanwhile.
        self._model_runner.propose_drafts()

    def _guard(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - ends the attach, not the model thread
            failure = error
            self._notify(lambda: self._on_failure(failure))

    def _notify(self, call: Callable[[], None]) -> None:
        def notify() -> None:
            if not self._is_over:
                call()

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(notify)
