"""What stands still costs the step loop nothing: counted in looks at workers, not in seconds."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from unit.scheduler.cell import FRONTEND
from unit.scheduler.step_loop.quiet_cell import QuietCell

from pagewire_scheduler.core.cell_load import WaitReason
from pagewire_scheduler.core.routing import placement
from pagewire_scheduler.core.state.waiting_queue import WaitingQueue
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.sampling.params import SamplingParams

NUM_WORKERS = 200
FEW = 24
LONG = SamplingParams(max_tokens=40, ignore_eos=True)


async def turns() -> None:
    """Let callbacks run that were put off to the next turns of the event loop."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_result_looks_at_its_worker_and_not_at_idle_ones() -> None:
    cell = QuietCell(NUM_WORKERS)
    cell.submit(1, [1, 2, 3], sampling=LONG)
    await turns()
    (busy,) = cell.busy
    cell.num_looks = 0
    for _ in range(5):
        cell.loop.apply(busy, busy.answer())
        await turns()
    assert busy.plans, "it goes on"
    assert cell.num_looks <= 5 * 4


async def test_a_burst_of_submits_looks_only_at_who_gets_them() -> None:
    cell = QuietCell(NUM_WORKERS)
    await turns()
    cell.num_looks = 0
    for number in range(1, 4):
        cell.submit(number, [number, 2, 3], sampling=LONG)
    await turns()
    assert len(cell.busy) == 3
    assert cell.num_looks <= FEW


async def test_an_abort_and_a_tick_look_at_nobody_who_stands_still() -> None:
    cell = QuietCell(NUM_WORKERS)
    cell.submit(1, [1, 2, 3], sampling=LONG)
    await turns()
    cell.num_looks = 0
    cell.loop.abort(cell.frontend, 1, None)
    await turns()
    for _ in range(3):
        cell.now += 0.05
        cell.loop._tick(cell.now, 0.0)
        await turns()
    assert cell.num_looks <= FEW


async def test_who_has_no_room_asks_a_few_others_and_not_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = QuietCell(NUM_WORKERS, num_blocks=4)
    await turns()
    large = cell.attach(NUM_WORKERS + 1, num_blocks=24, max_num_seqs=1)
    for number in range(1, 4):  # none of the others has enough blocks for any of these
        cell.submit(number, [number] * 30, sampling=LONG)
    await turns()
    assert cell.busy == [large]
    num_asked = 0
    fits = placement.fits

    def counted(*args: Any) -> bool:
        nonlocal num_asked
        num_asked += 1
        return fits(*args)

    monkeypatch.setattr(placement, "fits", counted)
    for _ in range(5):
        cell.loop.apply(large, large.answer())
        await turns()
    assert 0 < num_asked <= 5 * 4 * FEW


async def test_a_submit_names_its_blocks_for_a_few_workers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_chains = 0
    chain_for = WorkerState.chain_for

    def counted(worker: WorkerState, *args: Any) -> object:
        nonlocal num_chains
        num_chains += 1
        return chain_for(worker, *args)

    cell = QuietCell(NUM_WORKERS)
    await turns()
    monkeypatch.setattr(WorkerState, "chain_for", counted)
    cell.submit(1, list(range(30)), sampling=LONG)
    await turns()
    assert cell.busy
    assert num_chains <= FEW


async def test_a_submit_counts_no_queue_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = QuietCell(NUM_WORKERS)
    await turns()

    def walked(*_: object) -> Iterator[WaitingQueue]:
        raise AssertionError("all queues were walked")

    monkeypatch.setattr(type(cell.loop.core.queues), "_all", walked, raising=False)
    cell.submit(1, [1, 2, 3], sampling=LONG)
    await turns()
    assert cell.busy


class _NotWalked(dict[Any, Any]):
    def values(self) -> Any:
        raise AssertionError("all requests were walked")

    def items(self) -> Any:
        raise AssertionError("all requests were walked")

    def __iter__(self) -> Any:
        raise AssertionError("all requests were walked")


async def test_a_heartbeat_walks_no_request() -> None:
    cell = QuietCell(2, max_num_seqs=1)
    for number in range(1, 6):
        cell.submit(number, [number, 2, 3], sampling=LONG)
    await turns()
    frontend = cell.loop.core.frontends[FRONTEND]
    frontend.requests = _NotWalked(frontend.requests)
    cell.loop.driven.beat(1)
    counts = cell.loop.driven.newest_load.sequences[FRONTEND]["tiny"]
    assert (counts.num_running, counts.num_waiting[WaitReason.CAPACITY]) == (2, 3)


async def test_a_worker_that_comes_takes_over_what_others_have_no_room_for() -> None:
    cell = QuietCell(1, max_num_seqs=1)
    for number in range(1, 4):
        cell.submit(number, [number, 2, 3], sampling=LONG)
    await turns()
    assert len(cell.busy) == 1
    for number in range(2, 4):
        cell.attach(number, max_num_seqs=1)
    await turns()
    assert len(cell.busy) == 3
