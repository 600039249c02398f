"""A core with one frontend and one worker whose answers a test writes by hand."""

from dataclasses import replace

from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.core_settings import CoreSettings
from pagewire_scheduler.core.events import Event
from pagewire_scheduler.core.load import LoadLimits
from pagewire_scheduler.core.request import Submission
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.step import StepPlan, StepResult
from pagewire_shared.ids import RequestId
from pagewire_shared.sampling import SamplingParams

FRONTEND = b"f" * 16


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
            limits=LoadLimits(max_num_waiting=max_num_waiting),
            lease_seconds=5.0,
        )
        self.now = 0.0
        self.core = SchedulerCore(settings)
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)
        self.info = worker_info(1, **changes)
        self.core.attach_worker(self.info)

    def submit(self, number: int, prompt: list[int], **fields: object) -> list[Event]:
        values: dict[str, object] = {
            "request_id": RequestId(bytes([number]) * 16),
            "epoch": 0,
            "handle": number,
            "model": "tiny",
            "prompt_token_ids": tuple(prompt),
            "emitted": ((),),
            "is_finished": (False,),
            "sampling": SamplingParams(max_tokens=8),
        }
        values.update(fields)
        return self.core.submit(FRONTEND, Submission(**values), self.now)  # type: ignore[arg-type]

    def plan(self) -> StepPlan | None:
        plan = self.core.plan(self.info.worker_id)
        check_integrity(self.core)
        return plan

    def planned(self) -> StepPlan:
        plan = self.plan()
        assert plan is not None
        return plan

    def answer(self, plan: StepPlan, token: int = 9, **fields: object) -> list[Event]:
        slots = [s for s, is_sampled in zip(plan.slots, plan.samples, strict=True) if is_sampled]
        result = StepResult(3, plan.incarnation, plan.step_id, slots, [1] * len(slots))
        result.token_ids.extend([token] * len(slots))
        result = replace(result, **fields)  # type: ignore[arg-type]
        events = self.core.apply(self.info.worker_id, result)
        check_integrity(self.core)
        return events
