"""A core with a worker for prompts and one that generates, both answered by hand."""

from dataclasses import replace

from unit.scheduler.cell import FRONTEND, said, submission
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event, TimelineEvent
from pagewire_scheduler.core.data.settings import CoreSettings, HandoffPolicy
from pagewire_scheduler.core.data.worker_info import Role, WorkerInfo
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import Handoff, WorkerState, worker_of
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult

PROMPT = list(range(1, 18))  # four full blocks, and a token
P, D, E = (bytes([number]) * 16 for number in (1, 2, 3))
PREFILL, DECODE = frozenset({Role.PREFILL}), frozenset({Role.DECODE})
TRANSPORTS = (KvTransport.SHARED_MEMORY, KvTransport.GRPC)


def exchanging(number: int, roles: frozenset[Role], **changes: object) -> WorkerInfo:
    """Return the hello of a worker that hands out blocks and takes them."""
    return worker_info(
        number,
        **{
            "roles": roles,
            "kv_endpoint": f"unix:/w{number}",
            "kv_transports": TRANSPORTS,
            "pull_transports": TRANSPORTS,
            "host_id": "host",
            "bytes_per_block": 1000,
            **changes,
        },
    )


class HandoffCell:
    """P computes prompts, D generates; `workers` are others or more."""

    def __init__(self, *workers: WorkerInfo, handoff: HandoffPolicy = "always") -> None:
        self.now = 10.0
        self.core = SchedulerCore(CoreSettings(generation=3, handoff=handoff))
        self.core.now = self.now
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)
        self.timelines: list[TimelineEvent] = []
        for info in workers or (exchanging(1, PREFILL), exchanging(2, DECODE)):
            self.core.attach_worker(info)

    def worker(self, worker_id: bytes) -> WorkerState:
        return self.core.workers[worker_id]

    def submit(self, number: int, prompt: list[int] = PROMPT, **fields: object) -> list[Event]:
        return said(self.core.submit(FRONTEND, submission(number, prompt, **fields), self.now))

    def sequence(self, number: int, choice: int = 0) -> Sequence:
        request_id = RequestId(number.to_bytes(16, "little"))
        return self.core.requests[request_id].sequences[choice]

    def handoff(self, number: int) -> Handoff | None:
        worker = worker_of(sequence := self.sequence(number))
        return None if worker is None else worker.handoffs.incoming.get(sequence)

    def plan(self, worker_id: bytes) -> StepPlan | None:
        plan = self.core.plan(worker_id)
        check_integrity(self.core)
        return plan

    def step(self, worker_id: bytes, token: int = 9, **fields: object) -> list[Event]:
        """Plan one step of a worker, which there must be, and answer it."""
        plan = self.plan(worker_id)
        assert plan is not None, "nothing is planned"
        return self.answer(worker_id, plan, token, **fields)

    def answer(
        self, worker_id: bytes, plan: StepPlan, token: int = 9, **fields: object
    ) -> list[Event]:
        slots = [s for s, is_sampled in zip(plan.slots, plan.samples, strict=True) if is_sampled]
        result = StepResult(3, plan.incarnation, plan.step_id, slots=slots, counts=[1] * len(slots))
        result.token_ids.extend([token] * len(slots))
        result = replace(result, **fields)  # type: ignore[arg-type]
        events = self.core.apply(worker_id, result)
        check_integrity(self.core)
        self.timelines += [event for event in events if isinstance(event, TimelineEvent)]
        return said(events)

    def orders(self, worker_id: bytes = D) -> list[LoadOrder]:
        return self.core.kv_caches.take_loads(worker_id)

    def order(self, worker_id: bytes = D) -> LoadOrder:
        (order,) = self.orders(worker_id)
        return order

    def finish(
        self,
        order: LoadOrder,
        num_blocks: int | None = None,
        outcome: LoadOutcome = LoadOutcome.COMPLETE,
        worker_id: bytes = D,
    ) -> None:
        """Answer a load: with all blocks unless told otherwise."""
        num = len(order.blocks) if num_blocks is None else num_blocks
        answer = LoadAnswer(
            order.load_id,
            num,
            outcome,
            num_bytes=1000 * num,
            seconds=0.01,
            transport=KvTransport.GRPC,
            transfer_seconds=0.004,
        )
        self.core.kv_caches.note_load(worker_id, answer)
        check_integrity(self.core)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)
        check_integrity(self.core)

    def detach(self, worker_id: bytes) -> list[Event]:
        events = self.core.detach_worker(worker_id)
        check_integrity(self.core)
        return said(events)

    def run_out(self, worker_id: bytes = D) -> list[Event]:
        """Take steps of a worker until nothing is planned."""
        events: list[Event] = []
        for _ in range(100):
            plan = self.plan(worker_id)
            if plan is None:
                return events
            events += self.answer(worker_id, plan)
        raise AssertionError("still busy after 100 steps")

    @property
    def is_clean(self) -> bool:
        """Whether no worker holds a block, a slot or a hand-off."""
        return all(
            not any(worker.pool.ref_counts)
            and not worker.num_sequences
            and not worker.handoffs.outgoing
            and not worker.handoffs.incoming
            for worker in self.core.workers.values()
        )
