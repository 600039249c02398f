"""Several workers: conversations find their prefixes, load stays even, workers come and go."""

import random
from dataclasses import dataclass, field, replace

import pytest
from unit.scheduler.cell import FRONTEND, submission
from unit.scheduler.hellos import MODEL, worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event, FinishedEvent, TokensEvent
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult

BLOCK_SIZE = 16


@dataclass
class Cluster:
    """A core whose workers answer one plan per turn, with equal speed."""

    num_workers: int
    max_num_seqs: int = 64
    dice: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        self.core = SchedulerCore(CoreSettings(generation=1))
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)
        model = replace(MODEL, max_model_len=8000, block_size=BLOCK_SIZE, vocab_size=50_000)
        self.plans: dict[bytes, list[StepPlan]] = {}
        self.num_computed: dict[bytes, int] = {}
        self.num_requests = 0
        for number in range(1, self.num_workers + 1):
            info = worker_info(
                number,
                model=model,
                num_blocks=4000,
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=2048,
            )
            self.plans[info.worker_id] = []
            self.num_computed[info.worker_id] = 0
            self.core.attach_worker(info)

    def submit(self, prompt: tuple[int, ...], num_choices: int = 1, max_tokens: int = 20) -> int:
        self.num_requests += 1
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        emitted = ((),) * num_choices
        new = submission(self.num_requests, prompt, emitted=emitted, sampling=sampling)
        self.core.submit(FRONTEND, new, 0.0)
        return self.num_requests

    def turn(self) -> list[Event]:
        """Plan as the loop does, then let every worker answer its oldest plan."""
        for worker_id, plans in self.plans.items():
            while (plan := self.core.plan(worker_id)) is not None:
                plans.append(plan)
                self.num_computed[worker_id] += sum(plan.num_new_tokens)
        events: list[Event] = []
        for worker_id, plans in self.plans.items():
            if plans:
                events += self.core.apply(worker_id, self.answer(plans.pop(0)))
        return events

    def answer(self, plan: StepPlan) -> StepResult:
        slots = [slot for slot, sample in zip(plan.slots, plan.samples, strict=True) if sample]
        tokens = [self.dice.randrange(1, 50_000) for _ in slots]
        return StepResult(
            1,
            plan.incarnation,
            plan.step_id,
            slots=slots,
            counts=[1] * len(slots),
            token_ids=tokens,
        )

    def run(self) -> None:
        for _ in range(2000):
            if not self.core.requests:
                break
            self.turn()
        assert not self.core.requests
        check_integrity(self.core)


def test_conversations_find_their_prefixes_and_load_stays_even() -> None:
    cluster = Cluster(num_workers=2)
    dice = random.Random(7)
    texts = {
        number: [dice.randrange(1, 50_000) for _ in range(dice.randrange(50, 400))]
        for number in range(64)
    }
    turns_left = dict.fromkeys(texts, 5)
    handles: dict[int, int] = {}
    waiting_until = {number: dice.randrange(30) for number in texts}
    num_reusable = num_cached = 0
    for turn in range(2000):
        for number, until in list(waiting_until.items()):
            if until <= turn:
                del waiting_until[number]
                handles[cluster.submit(tuple(texts[number]))] = number
        for event in cluster.turn():
            number = handles[event.handle]
            if isinstance(event, TokensEvent):
                texts[number] += event.token_ids
                if event.first_position == 0 and turns_left[number] < 5:
                    # What the last turn left in full blocks, of at most all but one token.
                    num_cached += event.num_cached_tokens
            elif isinstance(event, FinishedEvent):
                turns_left[number] -= 1
                if turns_left[number]:
                    # The token sampled last was never computed.
                    num_reusable += (len(texts[number]) - 1) // BLOCK_SIZE * BLOCK_SIZE
                    texts[number] += [dice.randrange(1, 50_000) for _ in range(30)]
                    waiting_until[number] = turn + dice.randrange(1, 60)
        if not waiting_until and not cluster.core.requests:
            break
    assert not any(turns_left.values())
    assert num_cached >= 0.95 * num_reusable
    one, two = cluster.num_computed.values()
    assert abs(one - two) <= 0.2 * (one + two) / 2


def test_a_prefix_that_many_bring_at_once_is_computed_once_per_worker() -> None:
    cluster = Cluster(num_workers=2)
    prefix = tuple(range(1, 1601))
    for number in range(16):
        cluster.submit((*prefix, 10_000 + number), max_tokens=2)
    cluster.run()
    # Per worker the prefix once; per request the token after it, and one token decoded.
    assert sum(cluster.num_computed.values()) <= 2 * len(prefix) + 16 * (1 + 1)
    assert min(cluster.num_computed.values()) > len(prefix)


def test_choices_compute_their_prompt_once() -> None:
    cluster = Cluster(num_workers=1)
    cluster.submit(tuple(range(1, 1001)), num_choices=8, max_tokens=10)
    cluster.run()
    # 10 tokens per choice: the first comes with the prompt, the last is never computed.
    assert list(cluster.num_computed.values()) == [1000 + 8 * 9]


def test_a_draining_worker_gets_nothing_new_and_ends_what_it_has() -> None:
    cluster = Cluster(num_workers=2)
    first, second = cluster.core.workers.values()
    for number in range(8):
        cluster.submit((number + 1,) * 40)
    cluster.turn()
    assert first.running
    cluster.core.drain_worker(first.info.worker_id)
    assert not cluster.core.is_drained(first.info.worker_id)
    num_running = len(first.running)
    for number in range(8):
        cluster.submit((number + 100,) * 40)
        cluster.turn()
        assert len(first.running) <= num_running
    assert len(second.running) >= 8
    cluster.run()
    assert cluster.core.is_drained(first.info.worker_id)


def test_what_waits_at_a_draining_worker_moves() -> None:
    cluster = Cluster(num_workers=2, max_num_seqs=1)
    first, second = cluster.core.workers.values()
    for number in range(6):
        cluster.submit((number + 1,) * 40)
    assert len(first.waiting)
    cluster.core.drain_worker(first.info.worker_id)
    assert not len(first.waiting)
    assert len(second.waiting) == 6
    cluster.run()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_requests_wait_while_all_workers_drain_and_run_when_one_comes(num_workers: int) -> None:
    cluster = Cluster(num_workers=num_workers)
    for worker_id in list(cluster.core.workers):
        cluster.core.drain_worker(worker_id)
    cluster.submit((1,) * 40)
    assert not cluster.turn()
    assert len(cluster.core.requests) == 1
    model = next(iter(cluster.core.workers.values())).info.model
    info = worker_info(9, model=model, num_blocks=100)
    cluster.plans[info.worker_id], cluster.num_computed[info.worker_id] = [], 0
    cluster.core.attach_worker(info)
    cluster.run()


def test_a_reset_forgets_all_prefixes() -> None:
    cluster = Cluster(num_workers=1)
    prompt = tuple(range(1, 200))
    cluster.submit(prompt)
    cluster.run()
    before = sum(cluster.num_computed.values())
    assert cluster.core.kv_caches.reset("another model") == 0
    assert cluster.core.kv_caches.reset("tiny") == (199 + 19) // BLOCK_SIZE
    cluster.submit(prompt)
    cluster.run()
    assert sum(cluster.num_computed.values()) == 2 * before
