"""A core with one frontend and one worker whose answers a test writes by hand."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import BegunEvent, Event, FinishedEvent, TimelineEvent
from pagewire_scheduler.core.data.settings import CoreSettings, OverloadLimits
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult

FRONTEND = b"f" * 16
MAX_TURNS = 3000


def submission(number: int, prompt: Sequence[int], **fields: object) -> Submission:
    """Return a request of one choice unless told otherwise."""
    values: dict[str, Any] = {
        "request_id": RequestId(number.to_bytes(16, "little")),
        "epoch": 0,
        "handle": number,
        "model": "tiny",
        "prompt_token_ids": tuple(prompt),
        "emitted": ((),),
        "sampling": SamplingParams(max_tokens=8),
        **fields,
    }
    values.setdefault("is_finished", (False,) * len(values["emitted"]))
    return Submission(**values)


def finished(events: Iterable[Event]) -> list[FinishedEvent]:
    """Return those of `events` that end a choice."""
    return [event for event in events if isinstance(event, FinishedEvent)]


def said(events: Iterable[Event]) -> list[Event]:
    """Return `events` without the timelines and the weights of what begins."""
    return [event for event in events if not isinstance(event, TimelineEvent | BegunEvent)]


class Cell:
    """A core with one frontend and one worker, answered by hand."""

    def __init__(
        self,
        *,
        is_caching: bool = True,
        max_num_waiting: int = 100,
        settings: CoreSettings | None = None,
        **changes: object,
    ):
        settings = settings or CoreSettings(
            generation=3,
            is_caching=is_caching,
            limits=OverloadLimits(max_num_waiting=max_num_waiting),
            lease_seconds=5.0,
        )
        self.now = 0.0
        self.timelines: list[TimelineEvent] = []
        self.core = SchedulerCore(settings)
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)
        self.info = worker_info(1, **changes)
        self.core.attach_worker(self.info)

    def submit(self, number: int, prompt: list[int], **fields: object) -> list[Event]:
        return said(self.core.submit(FRONTEND, submission(number, prompt, **fields), self.now))

    def plan(self) -> StepPlan | None:
        plan = self.core.plan(self.info.worker_id)
        check_integrity(self.core)
        return plan

    def planned(self) -> StepPlan:
        plan = self.plan()
        assert plan is not None
        return plan

    def result(self, plan: StepPlan, token: int = 9, **fields: object) -> StepResult:
        """Return an answer to `plan` that samples `token` everywhere."""
        slots = [s for s, is_sampled in zip(plan.slots, plan.samples, strict=True) if is_sampled]
        tokens = [token] * len(slots)
        result = StepResult(
            3,
            plan.incarnation,
            plan.step_id,
            slots=slots,
            counts=[1] * len(slots),
            token_ids=tokens,
        )
        return replace(result, **fields)  # type: ignore[arg-type]

    def answer(self, plan: StepPlan, token: int = 9, **fields: object) -> list[Event]:
        events = self.core.apply(self.info.worker_id, self.result(plan, token, **fields))
        check_integrity(self.core)
        self.timelines += [event for event in events if isinstance(event, TimelineEvent)]
        return said(events)

    def turns(self) -> Iterator[list[Event]]:
        """Plan as far ahead as allowed and answer the oldest plan, until nothing is planned;
        yields what each answer brings."""
        plans: list[StepPlan] = []
        for _ in range(MAX_TURNS):
            while (plan := self.plan()) is not None:
                plans.append(plan)
            if not plans:
                return
            yield self.answer(plans.pop(0))
        raise AssertionError(f"still busy after {MAX_TURNS} steps")

    def run(self) -> list[Event]:
        """Take turns to the end and return all that they bring."""
        return [event for events in self.turns() for event in events]
