"""A step loop with many workers and one frontend whose streams only write down what is sent."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from unit.scheduler.cell import FRONTEND, submission
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.cell_load import CellLoad
from pagewire_scheduler.core.data.events import Event
from pagewire_scheduler.core.data.worker_info import ModelInfo, Role, WorkerInfo
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.peers.liveness import ProgressWatch
from pagewire_scheduler.peers.peers import FrontendInfo
from pagewire_shared.errors import PagewireError
from pagewire_shared.kv.load import LoadOrder
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult


@dataclass
class QuietWorker:
    """The loop's view of a worker's stream."""

    info: WorkerInfo
    watch: ProgressWatch
    is_drained: bool = False
    plans: list[StepPlan] = field(default_factory=list)
    grammars: list[bytes] = field(default_factory=list)
    orders: list[LoadOrder] = field(default_factory=list)
    cancels: list[int] = field(default_factory=list)

    def send_plan(self, plan: StepPlan) -> None:
        self.plans.append(plan)

    def send_grammar(self, grammar_id: bytes, params: StructuredOutputsParams) -> None:
        self.grammars.append(grammar_id)

    def send_load(self, order: LoadOrder) -> None:
        self.orders.append(order)

    def send_cancel_load(self, load_id: int) -> None:
        self.cancels.append(load_id)

    def send_roles(self, roles: Iterable[Role]) -> None:
        pass

    def send_drained(self) -> None:
        self.is_drained = True

    def close(self, error: PagewireError | None) -> None:
        pass

    def answer(self) -> StepResult:
        """Return the answer to the oldest plan: a token for each slot that samples."""
        plan = self.plans.pop(0)
        slots = [slot for slot, sample in zip(plan.slots, plan.samples, strict=True) if sample]
        tokens = [9] * len(slots)
        return StepResult(
            plan.generation,
            plan.incarnation,
            plan.step_id,
            slots=slots,
            counts=[1] * len(slots),
            token_ids=tokens,
        )


@dataclass
class QuietFrontend:
    """The loop's view of a frontend's stream."""

    info: FrontendInfo
    events: list[Event] = field(default_factory=list)

    def send_events(self, events: Sequence[Event]) -> None:
        self.events += events

    def send_models(self, models: Sequence[tuple[ModelInfo, int]]) -> None:
        pass

    def send_heartbeat(self, counter: int) -> None:
        pass

    def send_load(self, load: CellLoad) -> None:
        pass

    def close(self, error: PagewireError | None) -> None:
        pass


class QuietCell:
    """Call it on a running event loop. `num_looks` counts how often a worker was planned for."""

    def __init__(self, num_workers: int, **changes: object) -> None:
        self.now = 0.0
        self.loop = StepLoop(is_caching=True, lease_seconds=5.0, clock=lambda: self.now)
        self.frontend = QuietFrontend(FrontendInfo(frontend_id=FRONTEND, **_NOTHING))
        self.loop.attach_frontend(self.frontend)
        self.workers: list[QuietWorker] = []
        for number in range(1, num_workers + 1):
            self.attach(number, **changes)
        self.num_looks = 0
        plan = self.loop.core.plan

        def counted(worker_id: bytes) -> StepPlan | None:
            self.num_looks += 1
            return plan(worker_id)

        self.loop.core.plan = counted  # type: ignore[method-assign]

    def attach(self, number: int, **changes: object) -> QuietWorker:
        info = worker_info(number, worker_id=number.to_bytes(16, "big"), **changes)
        worker = QuietWorker(info, ProgressWatch(self.now))
        self.workers.append(worker)
        self.loop.attach_worker(worker)
        return worker

    def submit(self, number: int, prompt: Sequence[int], **fields: object) -> None:
        self.loop.submit(self.frontend, submission(number, prompt, **fields))

    @property
    def busy(self) -> list[QuietWorker]:
        """Workers with a plan that is not answered."""
        return [worker for worker in self.workers if worker.plans]


_NOTHING = {"cell": "", "tokenizers": {}, "held_generation": None, "held": ()}
