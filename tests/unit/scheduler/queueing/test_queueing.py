"""Who is served first, who is passed by whom and how often, and what is refused at the door."""

import pytest
from unit.scheduler.cell import Cell, finished

from pagewire_scheduler.core.audit import audit
from pagewire_scheduler.core.data.events import Event, FinishedEvent, RejectedEvent
from pagewire_scheduler.core.data.settings import CoreSettings, OverloadLimits
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.planning.schedule_waiting import MAX_SKIPS
from pagewire_scheduler.core.queueing.policy import PRIORITY_SECONDS
from pagewire_scheduler.core.state.capacity import MAX_PREEMPTIONS
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.params import SamplingParams


def served(cell: Cell) -> list[int]:
    """Return the handles in the order in which they end."""
    return [end.handle for end in finished(cell.run())]


def started(cell: Cell) -> list[int]:
    plan = cell.planned()
    order = [new.prompt_token_ids[0] for new in plan.new_sequences]
    cell.answer(plan)
    return order


def test_a_better_priority_goes_first_and_age_wins_in_the_end() -> None:
    cell = Cell(max_num_seqs=1, steps_in_flight=1)
    cell.submit(1, [1], sampling=SamplingParams(max_tokens=2))
    cell.answer(cell.planned())
    cell.submit(2, [2], priority=1, sampling=SamplingParams(max_tokens=1))
    cell.now = PRIORITY_SECONDS / 2
    cell.submit(3, [3], priority=0, sampling=SamplingParams(max_tokens=1))
    cell.now = PRIORITY_SECONDS * 2
    cell.submit(4, [4], priority=0, sampling=SamplingParams(max_tokens=1))
    assert served(cell) == [1, 3, 2, 4]


def test_a_better_priority_takes_the_slot_of_a_running_one_that_is_younger_by_rank() -> None:
    cell = Cell(max_num_seqs=1, steps_in_flight=1)
    cell.submit(1, [1], sampling=SamplingParams(max_tokens=20))
    cell.answer(cell.planned())
    cell.submit(2, [2], priority=-1, sampling=SamplingParams(max_tokens=1))
    assert served(cell) == [2, 1]


def test_one_without_room_is_passed_a_bounded_number_of_times() -> None:
    cell = Cell(num_blocks=10, steps_in_flight=1, max_num_seqs=8)
    # Blocks of 4. The first holds 2 and grows to 3; the second wants 8 of 10 and has to wait.
    cell.submit(1, [1] * 7, sampling=SamplingParams(max_tokens=2))
    small = SamplingParams(max_tokens=3)
    assert started(cell) == [1]
    cell.submit(2, [2] * 32, sampling=SamplingParams(max_tokens=2))
    ends: list[int] = []
    num_passed = 0
    for number in range(3, 3 + 4 * MAX_SKIPS):
        cell.submit(number, [number] * 6, sampling=small)
        plan = cell.plan()
        if plan is None:
            continue
        new = [one.prompt_token_ids[0] for one in plan.new_sequences]
        is_started = 2 in new
        num_passed += sum(one > 2 for one in new)
        ends += [end.handle for end in finished(cell.answer(plan))]
        if is_started:
            break
    assert is_started, "it was starved"
    assert 0 < num_passed <= MAX_SKIPS + 2
    ends += served(cell)
    assert sorted(ends) == sorted(range(1, number + 1))


def test_those_behind_one_without_room_are_started_at_once() -> None:
    cell = Cell(num_blocks=10, steps_in_flight=1)
    cell.submit(1, [1] * 15, sampling=SamplingParams(max_tokens=20))
    assert started(cell) == [1]
    cell.submit(2, [2] * 32, sampling=SamplingParams(max_tokens=2))
    cell.submit(3, [3] * 3, sampling=SamplingParams(max_tokens=2))
    assert started(cell) == [3]


def test_nobody_gives_way_more_often_than_is_promised() -> None:
    cell = Cell(num_blocks=12, steps_in_flight=1, is_caching=False, max_num_seqs=6)
    for number in range(1, 30):
        cell.submit(number, [number] * 5, sampling=SamplingParams(max_tokens=24))
    counts: dict[int, int] = {}
    ends: list[FinishedEvent] = []
    for events in cell.turns():
        for request in cell.core.requests.values():
            handle = request.submission.handle
            fairness = request.sequences[0].fairness
            counts[handle] = max(counts.get(handle, 0), fairness.num_preemptions)
        ends += finished(events)
    assert len(ends) == 29
    assert 0 < max(counts.values()) <= MAX_PREEMPTIONS


def fair_cell(weights: dict[str, float] | None = None) -> Cell:
    settings = CoreSettings(generation=3, policy="fair", tenant_weights=weights or {})
    return Cell(settings=settings, max_num_seqs=1, steps_in_flight=1)


def served_in_order(cell: Cell, tenants: list[str]) -> list[str]:
    for number, tenant in enumerate(tenants, start=1):
        sampling = SamplingParams(max_tokens=2)
        cell.submit(number, [number] * 4, tenant=tenant, sampling=sampling)
    return [tenants[handle - 1] for handle in served(cell)]


def test_a_tenant_with_many_requests_does_not_hold_up_another() -> None:
    order = served_in_order(fair_cell(), ["many"] * 8 + ["few"] * 2)
    assert order[:4].count("few") == 2


def test_weights_are_shares() -> None:
    order = served_in_order(fair_cell({"big": 3.0}), ["big"] * 30 + ["small"] * 30)
    assert 20 <= order[:32].count("big") <= 28


def test_a_tenant_that_was_away_has_not_saved_up() -> None:
    cell = fair_cell()
    served_in_order(cell, ["busy"] * 10)
    for number, tenant in enumerate(["new"] * 6 + ["busy"] * 6, start=20):
        cell.submit(number, [number] * 4, tenant=tenant, sampling=SamplingParams(max_tokens=2))
    order = ["new" if handle < 26 else "busy" for handle in served(cell)]
    assert 2 <= order[:6].count("busy") <= 4


def test_a_flood_of_older_small_requests_does_not_starve_a_large_one_of_another_tenant() -> None:
    settings = CoreSettings(generation=3, policy="fair")
    cell = Cell(settings=settings, num_blocks=10, max_num_seqs=8, steps_in_flight=1)
    for number in range(1, 90):
        sampling = SamplingParams(max_tokens=3 + number % 3)
        cell.submit(number, [1 + number % 30] * 6, tenant="many", sampling=sampling)
    cell.answer(cell.planned())
    cell.now = 1.0
    # Blocks of 4: it wants 8 of 10.
    cell.submit(99, [39] * 32, tenant="few", sampling=SamplingParams(max_tokens=2))
    num_before = 0
    for events in cell.turns():
        num_before += len([end for end in finished(events) if end.handle != 99])
        if any(end.handle == 99 for end in finished(events)):
            break
    assert num_before < MAX_SKIPS + 10


def test_one_that_presses_is_seen_behind_another_tenants_that_does_not() -> None:
    settings = CoreSettings(generation=3, policy="fair")
    cell = Cell(settings=settings, num_blocks=10, max_num_seqs=8, steps_in_flight=1)
    one, long = SamplingParams(max_tokens=2), SamplingParams(max_tokens=20)
    cell.submit(1, [1] * 8, tenant="a", sampling=one)
    cell.answer(cell.planned())
    cell.submit(2, [2] * 32, tenant="a", sampling=one)
    cell.submit(3, [3] * 6, tenant="a", sampling=long)
    plan = cell.planned()
    assert [new.prompt_token_ids[0] for new in plan.new_sequences] == [3]
    cell.answer(plan)
    # By its name it stands in front: a search of as many beams as there are slots.
    cell.submit(4, [4] * 4, tenant="", emitted=((),) * 8, beam_search=BeamParams(), sampling=one)
    _, large, young, _ = (None, *(request.sequences[0] for request in cell.core.requests.values()))
    large.fairness.num_skipped = MAX_SKIPS
    cell.plan()
    assert young.fairness.num_preemptions == 1, "it makes way for the large one"


def refusal(events: list[Event]) -> RejectedEvent:
    (event,) = events
    assert isinstance(event, RejectedEvent)
    assert event.error.code == "rate_limit_exceeded"
    assert event.error.retry_after_ms is not None
    assert event.error.retry_after_ms >= 1000
    return event


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        (OverloadLimits(max_num_waiting=3), "sequences"),
        (OverloadLimits(max_waiting_tokens=40), "tokens"),
        (OverloadLimits(max_request_bytes=20_000), "bytes"),
    ],
)
def test_beyond_a_limit_a_request_is_refused_with_a_hint_when_to_come_again(
    limits: OverloadLimits, word: str
) -> None:
    cell = Cell(settings=CoreSettings(generation=3, limits=limits), max_num_seqs=1)
    events: list[Event] = []
    for number in range(1, 10):
        events += cell.submit(number, [number] * 12)
    assert 0 < len(events) < 9
    assert word in refusal(events[:1]).error.message
    assert len(cell.core.requests) == 9 - len(events)


def test_what_was_taken_is_given_back() -> None:
    cell = Cell(settings=CoreSettings(generation=3), steps_in_flight=1)
    for number in range(1, 6):
        cell.submit(number, [number] * 12)
    core = cell.core
    assert (core.queues.num_waiting, core.queues.num_waiting_tokens) == (5, 5 * 12)
    assert core.load.num_bytes > 0
    cell.run()
    assert (core.queues.num_waiting, core.queues.num_waiting_tokens) == (0, 0)
    assert core.load.num_bytes == 0
    (pool,) = audit(core).pools
    assert (pool.num_held, pool.num_slots) == (0, 0)


def test_the_hint_follows_the_rate_at_which_requests_end() -> None:
    cell = Cell(settings=CoreSettings(generation=3), steps_in_flight=1)
    cell.core.tick(0.0)
    for number in range(1, 21):
        cell.submit(number, [number] * 2, sampling=SamplingParams(max_tokens=1))
    cell.run()
    for second in range(1, 3):
        cell.core.tick(float(second))
    assert cell.core.load.retry_after_ms(1) == 1000
    assert 1000 < cell.core.load.retry_after_ms(100) < 30_000
    assert cell.core.load.retry_after_ms(10_000) == 30_000


@pytest.mark.parametrize("priority", [-101, 101, 2**31 - 1])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    cell = Cell()
    (event,) = cell.submit(1, [1], priority=priority)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == "priority"


def test_a_request_that_comes_again_keeps_its_place() -> None:
    cell = Cell(max_num_seqs=1, steps_in_flight=1)
    cell.submit(1, [1])
    cell.submit(2, [2])
    cell.submit(3, [3])
    cell.submit(2, [2], epoch=1, handle=9)
    assert served(cell) == [1, 9, 3]


def test_states_of_those_that_wait_are_right() -> None:
    cell = Cell(max_num_seqs=1)
    cell.submit(1, [1])
    cell.submit(2, [2])
    cell.planned()
    states = [request.sequences[0].state for request in cell.core.requests.values()]
    assert states == [State.RUNNING, State.WAITING]
