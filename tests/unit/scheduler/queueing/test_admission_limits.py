"""What a cell takes on: what is held counts and not what may come; one tenant's load shuts out
nobody else's; and what runs already is never refused."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from unit.scheduler.cell import FRONTEND, Cell, submission
from unit.scheduler.hellos import MODEL

from pagewire_scheduler.core.data.events import Event, RejectedEvent
from pagewire_scheduler.core.data.settings import CoreSettings, OverloadLimits
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.params import SamplingParams

CONTEXT = 131_072
ROOMY = {"num_blocks": 40_000, "max_num_seqs": 8}


def long_cell(**settings: Any) -> Cell:
    """Return a cell whose model has a long context."""
    model = replace(MODEL, max_model_len=CONTEXT, block_size=16)
    return Cell(settings=CoreSettings(generation=3, **settings), model=model, **ROOMY)


def refused(events: Sequence[Event]) -> list[RejectedEvent]:
    return [event for event in events if isinstance(event, RejectedEvent)]


def rest_of_context(**fields: Any) -> SamplingParams:
    """Return what a frontend makes of absent `max_tokens`."""
    return SamplingParams(max_tokens=CONTEXT - 3, **fields)


@pytest.mark.parametrize(
    ("logprobs", "num_requests"), [(None, 2048), (0, 2048), (5, 1000), (20, 320)]
)
def test_a_long_context_is_counted_when_it_is_used(logprobs: int | None, num_requests: int) -> None:
    cell = long_cell()
    sampling = rest_of_context(logprobs=logprobs)
    for number in range(num_requests):
        assert cell.submit(number, [1, 2, 3], sampling=sampling) == []
    assert len(cell.core.requests) == num_requests


@pytest.mark.parametrize("logprobs", [None, 0, 5])
def test_what_is_held_is_never_more_than_what_is_counted(logprobs: int | None) -> None:
    cell = Cell(
        settings=CoreSettings(generation=3),
        model=replace(MODEL, max_model_len=10_000),
        num_blocks=4000,
        steps_in_flight=1,
    )
    cell.submit(1, list(range(1, 33)), sampling=SamplingParams(max_tokens=5000, logprobs=logprobs))
    (request,) = cell.core.requests.values()
    (sequence,) = request.sequences
    counted = [cell.core.load.num_bytes]
    num_top = logprobs or 0
    for _ in range(3000):
        plan = cell.core.plan(cell.info.worker_id)
        assert plan is not None
        fields: dict[str, Any] = {}
        if logprobs is not None:
            fields = {"logprobs": [-0.5], "ranks": [2]}
            fields |= {"num_top": [num_top], "top_token_ids": [7] * num_top}
            fields["top_logprobs"] = [-1.5] * num_top
        num_samples = sum(plan.samples)
        fields = fields if num_samples else {}
        result = cell.result(plan, **fields)
        cell.core.apply(cell.info.worker_id, result)
        counted.append(cell.core.load.num_bytes)
        if len(counted) % 500 == 0:
            logprobs_held = sequence.outcome.logprobs.arrays() if sequence.outcome.logprobs else ()
            arrays = [sequence.tokens, *logprobs_held]
            assert sum(map(sys.getsizeof, arrays)) <= cell.core.load.num_bytes
    assert counted == sorted(counted)
    assert counted[-1] > counted[0]
    most = 3000 * (6 + (0 if logprobs is None else 16 + 10 * num_top))
    assert counted[-1] - counted[0] <= most + 2**16, "and little more"
    cell.core.abort(FRONTEND, 1, None)
    assert cell.core.load.num_bytes == 0


def test_a_search_is_counted_as_it_grows() -> None:
    cell = Cell(
        settings=CoreSettings(generation=3),
        model=replace(MODEL, max_model_len=4000),
        num_blocks=4000,
        steps_in_flight=1,
        max_num_batched_tokens=64,
    )
    cell.submit(
        1,
        [1, 2, 3],
        emitted=((), ()),
        sampling=SamplingParams(max_tokens=3000, n=2, use_beam_search=True, temperature=0),
        beam_search=BeamParams(),
    )
    before = cell.core.load.num_bytes
    for _ in range(1500):
        plan = cell.core.plan(cell.info.worker_id)
        assert plan is not None
        num = sum(plan.samples)
        fields = {"num_top": [4] * num, "top_token_ids": [5, 6, 7, 8] * num}
        fields["top_logprobs"] = [-0.1, -0.2, -0.3, -0.4] * num  # type: ignore[list-item]
        cell.core.apply(cell.info.worker_id, cell.result(plan, **fields))
    assert cell.core.load.num_bytes > before + 2 * 1500 * 4


def test_what_may_come_is_bounded_too() -> None:
    """Nobody may take on so much that it could never be held."""
    limits = OverloadLimits(max_request_bytes=2**24)
    cell = long_cell(limits=limits)
    events: list[Event] = []
    for number in range(1000):
        events += cell.submit(number, [1, 2, 3], sampling=rest_of_context(logprobs=5))
    most = sum(request.bytes_at_most for request in cell.core.requests.values())
    assert refused(events)
    assert 0 < most <= 4 * limits.max_request_bytes


def many(core: SchedulerCore, tenant: str, count: int, first: int = 1, **fields: Any) -> int:
    """Submit requests of a tenant; return how many were taken."""
    num_taken = 0
    for number in range(first, first + count):
        events = core.submit(FRONTEND, submission(number, [1, 2, 3], tenant=tenant, **fields), 0.0)
        num_taken += not refused(events)
    return num_taken


@pytest.mark.parametrize("policy", ["fcfs", "fair"])
def test_a_model_without_a_worker_shuts_nobody_out(policy: Any) -> None:
    cell = Cell(settings=CoreSettings(generation=3, policy=policy))
    assert many(cell.core, "a", 5000, model="absent") == 4096
    assert many(cell.core, "a", 1, first=9000) == 1, "the same tenant, another model"
    assert many(cell.core, "b", 1, first=9001) == 1, "another tenant, another model"
    assert many(cell.core, "b", 1, first=9002, model="absent") == 1, "another tenant"


@pytest.mark.parametrize(
    "limits",
    [
        OverloadLimits(max_num_waiting=64),
        OverloadLimits(max_waiting_tokens=192),
        OverloadLimits(max_request_bytes=2**20),
    ],
)
def test_a_tenant_that_fills_a_limit_leaves_room_for_others(limits: OverloadLimits) -> None:
    cell = Cell(settings=CoreSettings(generation=3, limits=limits), max_num_seqs=1)
    num_taken = many(cell.core, "greedy", 2000)
    assert 0 < num_taken < 2000
    for number, tenant in enumerate("bcd"):
        assert many(cell.core, tenant, 1, first=5000 + number) == 1
    assert many(cell.core, "greedy", 10, first=6000) == 0
    assert many(cell.core, "b", 2000, first=7000) < num_taken, "what is set aside is small"
    assert many(cell.core, "z", 1, first=9999) == 1, "and never all gone"


def test_all_that_waits_is_bounded_however_many_tenants_there_are() -> None:
    limits = OverloadLimits(max_num_waiting=64)
    cell = Cell(settings=CoreSettings(generation=3, limits=limits), max_num_seqs=1)
    taken = sum(many(cell.core, f"t{n}", 2, first=10 * n) for n in range(1, 500))
    assert 64 <= taken <= 64 + 16
    assert cell.core.queues.num_waiting == taken
    for request in list(cell.core.requests.values()):
        assert request.handle is not None
        cell.core.abort(FRONTEND, request.handle, None)
    assert not cell.core.load.accounts, "tenants that hold nothing are forgotten"


@pytest.mark.parametrize(
    "limits", [OverloadLimits(max_num_waiting=2), OverloadLimits(max_request_bytes=12_000)]
)
def test_a_stream_that_comes_again_is_not_refused_for_load(limits: OverloadLimits) -> None:
    """After a restart of the scheduler newcomers may be there first."""
    cell = Cell(settings=CoreSettings(generation=3, limits=limits), max_num_seqs=1)
    assert many(cell.core, "", 100) < 100
    assert many(cell.core, "", 3, first=200, epoch=1) == 3
    assert many(cell.core, "", 3, first=300, epoch=2, emitted=((9,),)) == 3


def steps_until_done(cell: Cell, handle: int, most: int) -> int:
    """Return how many steps are answered until the request is over."""
    plans = []
    for num_steps in range(most):
        if handle not in cell.core.frontends[FRONTEND].handles:
            return num_steps
        while (plan := cell.plan()) is not None:
            plans.append(plan)
        if plans:
            cell.answer(plans.pop(0))
    raise AssertionError(f"not done after {most} steps")


def test_a_short_request_does_not_wait_for_a_tenant_that_takes_all_slots() -> None:
    def fresh() -> Cell:
        settings = CoreSettings(generation=3, policy="fair")
        return Cell(settings=settings, max_num_seqs=8, num_blocks=200, max_num_batched_tokens=64)

    four = SamplingParams(max_tokens=4)
    alone = fresh()
    alone.submit(1, [1, 2, 3], tenant="b", sampling=four)
    num_alone = steps_until_done(alone, 1, 50)
    cell = fresh()
    for number in range(10, 50):
        fields: dict[str, Any] = {"emitted": ((),) * 4, "tenant": "a", "priority": -100}
        cell.submit(
            number, [number % 30] * 4, sampling=SamplingParams(max_tokens=50, n=4), **fields
        )
    for _ in range(3):
        cell.answer(cell.planned())
    assert len(cell.core.workers[cell.info.worker_id].running) == 8
    cell.submit(1, [1, 2, 3], tenant="b", sampling=four)
    assert steps_until_done(cell, 1, 500) <= 2 * num_alone
