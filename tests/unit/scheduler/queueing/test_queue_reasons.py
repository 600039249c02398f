"""The time in the queue is told by what was waited for. The clock of these cells is moved by hand:
a second per step."""

import pytest
from unit.scheduler.cell import Cell
from unit.scheduler.handoff_cell import DECODE, PREFILL, D, HandoffCell, P, exchanging

from pagewire_scheduler.core.data.queue_reasons import NO_WAITS, QueueReason, WaitClock, added
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.data.timeline import Timeline
from pagewire_scheduler.core.queueing.adapter_slots import assign_slots
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.sleep.state import MemoryState, WorkerSleep

FAIR = CoreSettings(generation=3, policy="fair")


def tokens(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count)


def later(cell: Cell, seconds: float) -> None:
    cell.now += seconds
    cell.core.now = cell.now


def run(cell: Cell) -> None:
    for _ in cell.turns():
        later(cell, 1)


def told(cell: Cell, number: int) -> Timeline:
    """Return the newest timeline of a request, of which the reasons are the whole queue time."""
    timeline = [one.timeline for one in cell.timelines if one.handle == number][-1]
    assert sum(timeline.queue_waits) == pytest.approx(timeline.queue_seconds)
    return timeline


def waits(cell: Cell, number: int) -> dict[QueueReason, float]:
    found = told(cell, number).queue_waits
    return {reason: found[reason.value] for reason in QueueReason if found[reason.value]}


def test_a_clock_counts_to_the_reason_of_the_moment() -> None:
    now = 5.0
    clock = WaitClock(lambda: now, QueueReason.STEP)
    now = 7.0
    clock.turn(QueueReason.TENANTS)
    now = 8.0
    first = clock.reading()
    now = 12.0
    clock.restart()
    clock.turn(None)
    now = 50.0
    assert clock.reading()[QueueReason.TENANTS.value] == 5.0
    assert sum(clock.reading()) == 7.0
    assert added(first, first)[QueueReason.STEP.value] == 4.0
    assert added(NO_WAITS, first) == first
    assert sum(clock.of_part(QueueReason.STEP).reading()) == 0


def test_nothing_waits_in_an_idle_cell() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3])
    run(cell)
    assert waits(cell, 1) == {}


@pytest.mark.parametrize("changes", [{"max_num_seqs": 1}, {"num_blocks": 4}])
def test_slots_and_blocks_of_others(changes: dict[str, int]) -> None:
    cell = Cell(steps_in_flight=1, **changes)
    for number in (1, 2, 3):
        cell.submit(number, [number] * 8, sampling=tokens(6))
    run(cell)
    assert waits(cell, 2) == {QueueReason.CAPACITY: 6}
    # It was never looked at while the second was in front.
    assert waits(cell, 3) == {QueueReason.CAPACITY: 12}


def test_a_step_has_no_tokens_left() -> None:
    cell = Cell(max_num_batched_tokens=8, steps_in_flight=1)
    cell.submit(1, list(range(32)), sampling=tokens(6))
    cell.submit(2, [1, 2, 3], sampling=tokens(6))
    run(cell)
    assert waits(cell, 2) == {QueueReason.STEP: 4}


def test_other_tenants_are_served_first() -> None:
    cell = Cell(settings=FAIR, max_num_seqs=1, steps_in_flight=1)
    cell.submit(1, [1] * 8, sampling=tokens(3), tenant="a")
    cell.submit(2, [2] * 8, sampling=tokens(3), tenant="a")
    later(cell, 1)
    cell.plan()
    later(cell, 1)
    cell.submit(3, [3] * 8, sampling=tokens(9), tenant="b")
    cell.submit(4, [4] * 8, sampling=tokens(3), tenant="a")
    run_after(cell)
    assert waits(cell, 3) == {QueueReason.CAPACITY: 2}
    second = waits(cell, 2)
    assert second[QueueReason.TENANTS] == 9
    # Behind the first of its tenant it waits for the same.
    assert waits(cell, 4)[QueueReason.TENANTS] == 9


def run_after(cell: Cell) -> None:
    """Run on, with one step under way already."""
    cell.answer(cell.core.workers[cell.info.worker_id].outstanding[0].plan)
    run(cell)


def test_its_share_of_the_step_is_used_up() -> None:
    cell = Cell(settings=FAIR, max_num_batched_tokens=8, steps_in_flight=1)
    cell.submit(1, [1] * 40, sampling=tokens(2), tenant="a")
    cell.submit(2, [2] * 40, sampling=tokens(2), tenant="b")
    cell.submit(3, [3] * 8, sampling=tokens(2), tenant="a")
    run(cell)
    assert waits(cell, 3)[QueueReason.TENANTS] > 0


def test_tenants_beyond_those_looked_at_wait_for_the_others() -> None:
    cell = Cell(settings=FAIR, max_num_seqs=1, steps_in_flight=1)
    for number in range(1, 41):
        cell.submit(number, [number % 30] * 4, sampling=tokens(2), tenant=f"t{number}")
    run(cell)
    last = max(range(1, 41), key=lambda number: told(cell, number).queue_seconds)
    assert waits(cell, last)[QueueReason.TENANTS] > 50


def test_no_worker_of_its_model() -> None:
    cell = Cell()
    cell.core.detach_worker(cell.info.worker_id)
    cell.submit(1, [1, 2, 3])
    later(cell, 7)
    cell.core.attach_worker(cell.info)
    run(cell)
    assert waits(cell, 1) == {QueueReason.WORKER: 7}


def test_all_workers_sleep() -> None:
    cell = Cell(sleep=WorkerSleep(state=MemoryState.ASLEEP, level=1))
    cell.submit(1, [1, 2, 3])
    later(cell, 7)
    cell.core.detach_worker(cell.info.worker_id)
    cell.core.attach_worker(Cell().info)
    run(cell)
    assert waits(cell, 1) == {QueueReason.SLEEP: 7}


def test_its_grammar_is_compiled() -> None:
    cell = Cell()
    grammar = StructuredOutputsParams(regex="[ab]+")
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=4, structured_outputs=grammar))
    ((grammar_id, _),) = cell.core.workers[cell.info.worker_id].grammars.pop_requests()
    later(cell, 7)
    cell.core.note_grammar(cell.info.worker_id, grammar_id, None)
    run(cell)
    assert waits(cell, 1) == {QueueReason.GRAMMAR: 7}


def test_its_adapter_is_in_no_slot() -> None:
    cell = Cell(max_adapters=1, max_adapter_rank=16)
    cell.submit(1, [1, 2, 3], adapter=b"a" * 32)
    (order,) = assign_slots(cell.core.workers[cell.info.worker_id])
    later(cell, 7)
    cell.core.note_adapter(cell.info.worker_id, order.load_id, None)
    run(cell)
    assert waits(cell, 1) == {QueueReason.ADAPTER: 7}


def test_what_gave_way_tells_how_long_it_was_paused() -> None:
    cell = Cell(settings=FAIR, max_num_seqs=2, steps_in_flight=1)
    for number in (1, 2):
        cell.submit(number, [number] * 8, sampling=tokens(12), tenant="a")
    cell.plan()
    cell.submit(3, [3] * 8, sampling=tokens(6), tenant="b")
    run_after(cell)
    assert told(cell, 2).paused_seconds >= 6
    assert waits(cell, 2) == {}
    assert told(cell, 1).paused_seconds == 0


def test_a_lost_worker_is_paused_for_and_not_queued_for() -> None:
    cell = Cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3])
    cell.answer(cell.planned())
    cell.core.detach_worker(cell.info.worker_id)
    later(cell, 7)
    cell.core.attach_worker(cell.info)
    run(cell)
    assert told(cell, 1).paused_seconds == 7
    assert waits(cell, 1) == {}


def test_a_prefill_elsewhere_waits_in_place_of_its_choice() -> None:
    cell = HandoffCell(exchanging(1, PREFILL, max_num_batched_tokens=8), exchanging(2, DECODE))
    for number in (1, 2):
        cell.submit(number, [number] * 17)
    for _ in range(4):
        cell.step(P)
        cell.core.now += 1
    for order in cell.orders():
        cell.finish(order)
    cell.run_out(D)
    found = {one.handle: one.timeline for one in cell.timelines}
    assert found[1].queue_waits == NO_WAITS
    assert found[2].queue_seconds == found[2].queue_waits[QueueReason.STEP.value] == 2
