"""Tenants share the prompt tokens of a step: long prompts of one keep nobody else waiting."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from unit.scheduler.cell import Cell, finished
from unit.scheduler.hellos import MODEL

from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.data.settings import CoreSettings, PolicyName
from pagewire_scheduler.core.queueing.slot_shares import divide
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan

STEP_TOKENS, LONG = 128, 2_000
FOUR = SamplingParams(max_tokens=4, ignore_eos=True)
B = 1_000


def make_cell(policy: PolicyName = "fair", **changes: Any) -> Cell:
    weights = changes.pop("weights", {})
    settings = CoreSettings(generation=3, policy=policy, tenant_weights=weights)
    values = {
        "model": replace(MODEL, max_model_len=100_000, block_size=16),
        "num_blocks": 2_000,
        "max_num_seqs": 64,
        "max_num_batched_tokens": STEP_TOKENS,
        **changes,
    }
    return Cell(settings=settings, **values)


def flood(cell: Cell, count: int = 64, num_tokens: int = LONG, **fields: Any) -> None:
    """Tenant "a" asks so many long prompts."""
    for number in range(1, count + 1):
        prompt = [number % 25] * num_tokens
        cell.submit(number, prompt, **{"tenant": "a", "sampling": FOUR, **fields})


class Steps:
    """Steps of a cell with two under way, counted, and the prompt tokens of each tenant."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.num_steps = 0
        self.tokens: Counter[str] = Counter()
        self.plans: list[StepPlan] = []

    def step(self) -> set[int]:
        """Plan as far ahead as allowed, answer one step, return the handles that ended."""
        while (plan := self.cell.plan()) is not None:
            self.plans.append(plan)
            worker = self.cell.core.workers[self.cell.info.worker_id]
            rows = zip(worker.outstanding[-1].sequences, plan.num_new_tokens, strict=True)
            for sequence, num_tokens in rows:
                if num_tokens > 1:
                    self.tokens[sequence.request.submission.tenant] += num_tokens
        self.num_steps += 1
        return {end.handle for end in finished(self.cell.answer(self.plans.pop(0)))}

    def until(self, handle: int) -> int:
        """Return how many steps are answered until this request has ended."""
        first = self.num_steps
        while handle not in self.step():
            assert self.num_steps - first < 200, "it waits for the others"
        return self.num_steps - first


def num_steps_alone(**fields: Any) -> int:
    cell = make_cell()
    cell.submit(B, [1, 2, 3, 4], **{"tenant": "b", "sampling": FOUR, **fields})
    return Steps(cell).until(B)


@pytest.mark.parametrize("num_steps_before", [1, 5, 40])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shared_step_tokens": 32},
        {"steps_in_flight": 1},
        {"groups": CacheGroups((64,)), "num_blocks": 100},
    ],
    ids=["two_under_way", "longer_alone", "one_under_way", "window"],
)
def test_long_prompts_of_one_tenant_keep_another_waiting_for_no_more_than_its_own_time(
    num_steps_before: int, changes: dict[str, Any]
) -> None:
    cell = make_cell(**changes)
    flood(cell)
    steps = Steps(cell)
    for _ in range(num_steps_before):
        steps.step()
    cell.submit(B, [1, 2, 3, 4], tenant="b", sampling=FOUR)
    assert steps.until(B) <= 2 * num_steps_alone()


def test_one_request_after_the_other_of_a_tenant_is_never_delayed() -> None:
    cell = make_cell()
    flood(cell)
    steps = Steps(cell)
    for number in range(8):
        cell.submit(B + number, [1, 2, 3, number], tenant="b", sampling=FOUR)
        assert steps.until(B + number) <= 2 * num_steps_alone()


def test_output_of_others_goes_on_beside_long_prompts() -> None:
    cell = make_cell()
    cell.submit(B, [1, 2, 3, 4], tenant="b", sampling=SamplingParams(max_tokens=30))
    steps = Steps(cell)
    steps.step()
    # By its rank it is older than the stream, and comes first.
    cell.submit(99, [1] * LONG, tenant="c", priority=-3, sampling=FOUR)
    steps.step()
    flood(cell)
    assert steps.until(B) <= 30


@pytest.mark.parametrize(
    ("weights", "share_of_b"), [({}, 1 / 3), ({"b": 2.0}, 1 / 2), ({"a": 3.0, "c": 2.0}, 1 / 6)]
)
def test_three_tenants_with_long_prompts_get_their_shares(
    weights: dict[str, float], share_of_b: float
) -> None:
    cell = make_cell(weights=weights)
    for number in range(1, 13):
        prompt = [number] * 4 * LONG
        cell.submit(number, prompt, tenant="aaab"[number % 4], sampling=FOUR)
    cell.submit(50, [13] * 4 * LONG, tenant="c", sampling=FOUR)
    steps = Steps(cell)
    for _ in range(5):
        steps.step()
    before = steps.tokens.copy()
    for _ in range(60):
        steps.step()
    tokens = steps.tokens - before
    assert tokens["b"] / tokens.total() == pytest.approx(share_of_b, abs=0.03)
    assert tokens.total() >= 60 * (STEP_TOKENS - 3), "no tokens of a step are lost"


def test_within_a_tenant_the_oldest_comes_first_and_priorities_count() -> None:
    cell = make_cell()
    flood(cell, 8)
    steps = Steps(cell)
    for number, priority in ((1, 5), (2, 0), (3, -5)):
        prompt = [30 + number] * 300
        cell.submit(B + number, prompt, tenant="b", priority=priority, sampling=FOUR)
    ends: list[int] = []
    while len(ends) < 3:
        ends += [end - B for end in steps.step() if end > B]
    assert ends == [3, 2, 1]


def test_priorities_of_one_tenant_do_not_slow_another() -> None:
    cell = make_cell()
    flood(cell, priority=-100)
    steps = Steps(cell)
    for _ in range(5):
        steps.step()
    cell.submit(B, [1, 2, 3, 4], tenant="b", priority=100, sampling=FOUR)
    assert steps.until(B) <= 2 * num_steps_alone()


def test_a_full_batch_of_long_prompts_makes_a_place() -> None:
    cell = make_cell(max_num_seqs=4)
    flood(cell, sampling=SamplingParams(max_tokens=1_000, ignore_eos=True), num_tokens=200)
    steps = Steps(cell)
    for _ in range(20):
        steps.step()
    assert cell.core.workers[cell.info.worker_id].slots.num_free == 0
    cell.submit(B, [1, 2, 3, 4], tenant="b", sampling=FOUR)
    assert steps.until(B) <= 2 * num_steps_alone()


@pytest.mark.parametrize(
    ("num_prompt", "num_tokens", "changes"),
    [
        (300, 200, {}),
        (300, 600, {}),
        (60, 600, {}),
        (60, 600, {"weights": {"a": 2.0, "b": 2.0}}),
        (300, 300, {"weights": {"a": 2.0}}),
    ],
)
def test_a_pool_full_of_one_tenant_makes_a_place(
    num_prompt: int, num_tokens: int, changes: dict[str, Any]
) -> None:
    cell = make_cell(max_num_seqs=16, num_blocks=100, **changes)
    long = SamplingParams(max_tokens=1_000, ignore_eos=True)
    flood(cell, num_tokens=num_prompt, sampling=long)
    steps = Steps(cell)
    for _ in range(60):
        steps.step()
    prompt = [38] * num_tokens
    cell.submit(B, prompt, tenant="b", sampling=FOUR)
    num_alone = 3 + -(-num_tokens // STEP_TOKENS)
    # Beside it the others have half of each step.
    assert steps.until(B) <= 2 * num_alone


def test_what_one_tenant_took_of_a_pool_is_not_taken_back() -> None:
    cell = make_cell(max_num_seqs=16, num_blocks=100)
    sampling = SamplingParams(max_tokens=100, ignore_eos=True)
    for number in range(1, 25):
        tenant = "a" if number <= 8 else "ab"[number % 2]
        cell.submit(number, [number] * 300, tenant=tenant, sampling=sampling)
    steps = Steps(cell)
    ends: set[int] = set()
    while len(ends) < 24:
        ends |= steps.step()
    assert cell.core.counts.num_preemptions <= 6
    assert steps.tokens.total() <= 1.1 * 24 * 300, "nearly nothing is computed twice"


def test_the_only_sequence_of_a_tenant_keeps_its_blocks() -> None:
    cell = make_cell(num_blocks=100)
    flood(cell, 1, 1_400, sampling=SamplingParams(max_tokens=20, ignore_eos=True))
    steps = Steps(cell)
    steps.step()
    cell.submit(B, [38] * 400, tenant="b", sampling=FOUR)
    steps.until(1)
    assert cell.core.counts.num_preemptions == 0
    steps.until(B)


def test_with_one_tenant_and_by_arrival_the_oldest_takes_what_there_is() -> None:
    cases: list[tuple[PolicyName, str]] = [("fair", "a"), ("fcfs", "b")]
    for policy, tenant in cases:
        cell = make_cell(policy)
        flood(cell, 2)
        cell.submit(B, [1, 2], tenant=tenant, sampling=FOUR)
        plans = [cell.planned(), cell.planned()]
        assert [plan.num_new_tokens for plan in plans] == [[STEP_TOKENS], [STEP_TOKENS]]


def test_shares_of_a_step_are_what_is_wanted_and_then_alike() -> None:
    def alike(_: str) -> float:
        return 1.0

    assert divide(100, {"a": 1_000, "b": 4}, alike) == {"a": 96, "b": 4}
    assert divide(100, {"a": 1_000, "b": 1_000, "c": 4}, alike) == {"a": 48, "b": 48, "c": 4}
    assert divide(10, {"a": 1_000, "b": 1_000, "c": 1_000}, alike) == {"a": 3, "b": 3, "c": 4}


@pytest.mark.parametrize("weight", [lambda _: 1.0, lambda one: 1e-3 if one == "0" else 5.0])
def test_everybody_has_a_token_and_all_are_given(weight: Callable[[str], float]) -> None:
    for num_tenants in range(1, 12):
        for num_tokens in range(num_tenants, 40):
            wants = {str(number): 1 + 7 * number for number in range(num_tenants)}
            shares = divide(num_tokens, wants, weight)
            assert sum(shares.values()) == min(num_tokens, sum(wants.values()))
            assert all(1 <= shares[one] <= wants[one] for one in wants)
