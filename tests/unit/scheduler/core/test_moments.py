"""A traced request keeps what workers and stores did for it, and when; others keep nothing."""

from unit.scheduler.cell import Cell
from unit.scheduler.handoff_cell import D, HandoffCell, P
from unit.scheduler.loading_cell import PROMPT, STORE, LoadingCell

from pagewire_scheduler.core.data.moments import (
    MAX_MOMENTS,
    Moment,
    MomentKind,
    Moments,
    PauseCause,
)


def told(cell, number=1):
    """Return (seconds since the arrival, moment) of the newest timeline of a request."""
    return [one.timeline.moments for one in cell.timelines if one.handle == number][-1]


def step(cell, seconds, **fields):
    """Plan a step, let it take so long, and answer it."""
    plan = cell.planned()
    cell.now += seconds
    cell.core.now = cell.now
    cell.answer(plan, **fields)


def test_parts_of_a_prompt_take_what_the_worker_measured():
    cell = Cell(max_num_batched_tokens=8, steps_in_flight=1)
    cell.submit(1, list(range(17)), is_traced=True)
    for _ in range(3):
        step(cell, 1.0, model_time_us=250_000)
    worker = cell.info.worker_id
    found = [(since, one.kind, one.seconds, one.num_tokens) for since, one in told(cell)]
    assert found == [
        (1.0, MomentKind.PREFILL, 0.25, 8),
        (2.0, MomentKind.PREFILL, 0.25, 8),
        (3.0, MomentKind.PREFILL, 0.25, 1),
        (3.0, MomentKind.DECODE, 0.0, 0),
    ]
    assert {one.worker_id for _, one in told(cell)} == {worker}
    before = told(cell)
    step(cell, 1.0)
    assert told(cell) == before, "a step of one token is none of them"


def test_a_request_that_is_not_traced_keeps_nothing():
    cell = Cell()
    cell.submit(1, [1, 2, 3])
    (request,) = cell.core.requests.values()
    assert request.moments is None
    cell.run()
    assert told(cell) == ()


def test_blocks_of_stores():
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT, is_traced=True)
    cell.finish(cell.order(), tiers=(("memory", 3), ("disk", 1)))
    cell.run()
    load = told(cell)[0][1]
    assert (load.kind, load.num_blocks, load.source_id) == (MomentKind.LOAD, 4, b"")
    assert load.tiers == (("memory", 3), ("disk", 1))
    assert [address for address, _, _ in load.stores] == [STORE]


def test_a_hand_off_names_both_workers():
    cell = HandoffCell()
    cell.submit(1, is_traced=True)
    cell.step(P)
    cell.finish(cell.order())
    cell.step(D)
    chunk, load, *others = [one for _, one in told(cell)]
    assert (chunk.kind, chunk.worker_id, chunk.num_tokens) == (MomentKind.PREFILL, P, 16)
    assert (load.kind, load.worker_id, load.source_id) == (MomentKind.LOAD, D, P)
    assert load.stores == ()
    assert (others[-1].kind, others[-1].worker_id) == (MomentKind.DECODE, D)


def test_a_pause_has_its_cause():
    cell = Cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3], is_traced=True)
    step(cell, 1.0)
    cell.core.detach_worker(cell.info.worker_id)
    cell.now = cell.core.now = 5.0
    cell.core.attach_worker(cell.info)
    step(cell, 1.0)
    kinds = [one.kind for _, one in told(cell)]
    assert kinds[-3:] == [MomentKind.PAUSE, MomentKind.PREFILL, MomentKind.DECODE]
    since, pause = told(cell)[-3]
    assert (since, pause.seconds, pause.cause) == (5.0, 4.0, PauseCause.WORKER_LOST)


def test_they_are_bounded():
    moments = Moments()
    for _ in range(MAX_MOMENTS + 5):
        moments.add(Moment(kind=MomentKind.DECODE, choice=0, ended_at=0.0, seconds=0.0))
    assert len(moments.of(0)) == MAX_MOMENTS
    assert moments.of(1) == ()
