"""A scheduler core and an executor in one process: the whole step path without sockets.

Plans and results are the messages that cross between processes, and are not serialized.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from steps import begin_step

from pagewire_scheduler.convert.worker import worker_info
from pagewire_scheduler.core.data.events import Event, FinishedEvent, RejectedEvent, TokensEvent
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.token_logprobs import PackedLogprobs
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.convert import (
    plan_from_message,
    plan_to_message,
    result_from_message,
    result_to_message,
)
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.link.convert import hello_to_message
from pagewire_worker.loading.loader import Replica

FRONTEND = b"benchmark-front-"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and how it goes on."""

    prompt: Sequence[int]
    sampling: SamplingParams


@dataclass(slots=True)
class Answer:
    """What was generated; log-probabilities where they were asked for."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PackedLogprobs] = field(default_factory=list)


class Engine:
    """A replica under a scheduler core of its own, without a prefix cache.

    Keeps as many plans out as the replica has steps in flight.

    Args:
        replica: Holds no requests.
        max_num_batched_tokens: Most tokens of a step; None for the replica's own.
    """

    def __init__(self, replica: Replica, max_num_batched_tokens: int | None = None) -> None:
        self._executor = replica.model_runner
        self._executor.drop_slots()
        self._core = SchedulerCore(CoreSettings(generation=1, is_caching=False))
        hello = hello_to_message(replica.info, incarnation=1, highest_generation=0, held={})
        info = worker_info(hello)
        if max_num_batched_tokens is not None:
            info = replace(info, max_num_batched_tokens=max_num_batched_tokens)
        self._info = info
        self._core.attach_worker(info)
        self._core.attach_frontend(FRONTEND, [], is_same_generation=False)
        self._in_flight: deque[Callable[[], StepResult]] = deque()
        self._answers: list[Answer] = []
        self._num_open = 0
        self.num_steps = 0
        self.num_mixed_steps = 0

    def run(self, requests: Sequence[Request], num_at_once: int | None = None) -> list[Answer]:
        """Return the answers in order; at most `num_at_once` are open, or all."""
        first = len(self._answers)
        self._answers += [Answer() for _ in requests]
        waiting = deque(range(len(requests)))
        limit = num_at_once or len(requests)
        while waiting or self._num_open:
            while waiting and self._num_open < limit:
                index = waiting.popleft()
                self._submit(first + index, requests[index])
            self._turn()
        return self._answers[first:]

    def _submit(self, handle: int, request: Request) -> None:
        self._num_open += 1
        submission = Submission(
            request_id=RequestId(handle.to_bytes(16, "little")),
            epoch=0,
            handle=handle,
            model=self._info.model.name,
            prompt_token_ids=tuple(request.prompt),
            emitted=((),),
            is_finished=(False,),
            sampling=request.sampling,
        )
        self._take(self._core.submit(FRONTEND, submission, 0.0))

    def _turn(self) -> None:
        """Plan as far ahead as allowed, then take the oldest result."""
        while (plan := self._core.plan(self._info.worker_id)) is not None:
            received = plan_from_message(plan_to_message(plan))
            self._count(received)
            self._in_flight.append(begin_step(self._executor, received))
        result = result_from_message(result_to_message(self._in_flight.popleft()()))
        self._take(self._core.apply(self._info.worker_id, result))

    def _count(self, plan: StepPlan) -> None:
        self.num_steps += 1
        lengths = [int(length) for length in plan.num_new_tokens]
        self.num_mixed_steps += 1 in lengths and max(lengths) > 1

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, TokensEvent):
                answer = self._answers[event.handle]
                answer.token_ids.extend(event.token_ids)
                answer.logprobs.extend(event.token_logprobs)
            elif isinstance(event, FinishedEvent):
                self._num_open -= 1
                if event.error is not None:
                    raise SystemExit(f"a request failed: {event.error}")
            elif isinstance(event, RejectedEvent):
                raise SystemExit(f"a request was refused: {event.error}")
