"""Notes when the phases and layers of steps begin and end, in the model thread of one rank."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.batch.input_batch import PreparedStep

MAX_EVENTS: Final = 200_000
"""Most events of one profile of a rank: some 20 MB of JSON."""


class Event(NamedTuple):
    """A time in which the model thread did one thing, in nanoseconds of time.time_ns()."""

    name: str
    began: int
    ended: int
    args: Mapping[str, Any]


_NOTHING: Final[Mapping[str, Any]] = {}


class StepClock:
    """Keeps the events of steps. It is called in the model thread alone, but for `events`.

    Args:
        most_steps: Steps with work after which it is full.
        on_full: Called once when it is full, in the model thread.

    Attributes:
        num_steps: Steps with work that have ended.
    """

    def __init__(self, most_steps: int, on_full: Callable[[], None] | None = None) -> None:
        self.num_steps = 0
        self._most_steps = most_steps
        self._on_full = on_full
        self._events: list[Event] = []
        # perf_counter is steady; ranks and torch have the clock of the system in common.
        self._offset = time.time_ns() - time.perf_counter_ns()
        self._is_full = False
        self._step: Event | None = None
        self._phase: Event | None = None
        self._layer = 0
        self._layer_began = 0
        self._has_work = False

    def begin(self, plan: StepPlan) -> None:
        """Note that the launch of a plan begins."""
        self._has_work = len(plan.slots) > 0
        args = {"step": plan.step_id, "sequences": len(plan.slots)}
        self.begin_step("step", args)
        self.mark("plan")

    def begin_step(self, name: str, args: Mapping[str, Any] = _NOTHING) -> None:
        """Note that something begins that has phases or layers."""
        now = self._now()
        self._close(now)
        self._step = Event(name, now, 0, args)
        self._layer, self._layer_began = 0, now

    def mark(self, phase: str) -> None:
        """Note that a phase begins, and ends the one before."""
        now = self._now()
        self._close_phase(now)
        self._phase = Event(phase, now, 0, _NOTHING)

    def forward(self, step: PreparedStep) -> None:
        """Note that the model begins to compute a step."""
        self.mark("forward")
        assert self._phase is not None
        batch = step.batch
        args = {
            "tokens": len(batch.token_ids),
            "rows": len(batch.output_rows),
            "sequences": len(step.slots),
            "sampled": len(step.sampling_slots),
            "is_decode": batch.is_decode,
        }
        self._phase = self._phase._replace(args=args)
        self._layer, self._layer_began = 0, self._phase.began

    def layer(self) -> None:
        """Note that the next layer is computed."""
        now = self._now()
        self._keep(Event(f"layer {self._layer}", self._layer_began, now, _NOTHING))
        self._layer += 1
        self._layer_began = now

    def end(self) -> None:
        """Note that the model thread is done with a step, for now."""
        was_step = self._step is not None
        self._close(self._now())
        if was_step and self._has_work:
            self.num_steps += 1
            self._has_work = False
            if self.num_steps >= self._most_steps:
                self._fill()

    def events(self) -> list[Event]:
        """Return all events; what has not ended ends now, and has `unfinished` set."""
        found = list(self._events)
        for event in (self._phase, self._step):
            if event is not None:
                args = {**event.args, "unfinished": True}
                found.append(event._replace(ended=self._now(), args=args))
        return found

    def _close(self, now: int) -> None:
        self._close_phase(now)
        if self._step is not None:
            self._keep(self._step._replace(ended=now))
            self._step = None

    def _close_phase(self, now: int) -> None:
        if self._phase is not None:
            self._keep(self._phase._replace(ended=now))
            self._phase = None

    def _keep(self, event: Event) -> None:
        if self._is_full:
            return
        self._events.append(event)
        if len(self._events) >= MAX_EVENTS:
            self._fill()

    def _fill(self) -> None:
        if not self._is_full:
            self._is_full = True
            if self._on_full is not None:
                self._on_full()

    def _now(self) -> int:
        return time.perf_counter_ns() + self._offset
