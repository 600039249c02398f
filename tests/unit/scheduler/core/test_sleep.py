"""Workers that sleep and wake, as the core sees it: attaches that end and begin."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import Cell, finished
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.errors import DeadlineError, UnavailableError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sleep.state import (
    ALL_TAGS,
    MemoryState,
    SleepMode,
    SleepOrder,
    WorkerSleep,
)

LONG = SamplingParams(max_tokens=20)
ASLEEP = WorkerSleep(state=MemoryState.ASLEEP, level=1)


class SleepCell(Cell):
    """A cell whose workers sleep."""

    def order(self, **changes):
        self.core.sleeping.order(self.state, SleepOrder(**changes))

    @property
    def state(self):
        return self.core.workers[self.info.worker_id]

    @property
    def is_due(self):
        return self.core.sleeping.is_due(self.state)

    def attach(self, sleep=None):
        """The worker ends its attach and attaches again."""
        self.core.detach_worker(self.info.worker_id)
        self.info = replace(self.info, incarnation=self.info.incarnation + 1, sleep=sleep)
        return self.core.attach_worker(self.info)

    def tick(self, now):
        self.now = now
        return self.core.tick(now)

    def wakes(self):
        return self.core.sleeping.take_wakes()


def test_keep_preempts_once_no_step_is_under_way():
    cell = SleepCell(can_sleep=True)
    cell.submit(1, [1] * 10, sampling=LONG)
    plan = cell.planned()
    cell.order()
    assert not cell.is_due
    assert cell.plan() is None
    cell.answer(plan)
    assert cell.plan() is None
    assert cell.is_due
    cell.submit(2, [2] * 4)
    cell.attach(ASLEEP)
    assert cell.plan() is None
    sequences = [request.sequences[0] for request in cell.core.requests.values()]
    assert [one.state for one in sequences] == [State.WAITING, State.WAITING]
    assert [one.placement.worker for one in sequences] == [None, None]
    assert sequences[0].times.num_migrations == 1
    assert sequences[0].times.num_recoveries == 0
    assert sequences[0].request.num_losses == 0
    assert cell.state.totals.num_lost_workers == 0
    cell.attach()
    assert [one.num_tokens for one in finished(cell.run())] == [8, 20]


def test_wait_lets_sequences_end_first():
    cell = SleepCell(can_sleep=True)
    cell.submit(1, [1] * 10)
    plan = cell.planned()
    cell.order(mode=SleepMode.WAIT)
    cell.answer(plan)
    cell.submit(2, [2] * 4)
    assert not cell.is_due
    assert len(finished(cell.run())) == 1
    assert cell.is_due
    assert not cell.core.is_drained(cell.info.worker_id), "it is to sleep, and not to end"


def test_names_of_its_blocks_are_forgotten():
    cell = SleepCell(can_sleep=True)
    cell.submit(1, [1] * 16)
    cell.run()
    assert len(cell.state.pool.cache) > 0
    cell.order()
    cell.attach(ASLEEP)
    cell.attach()
    assert len(cell.state.pool.cache) == 0
    cell.submit(2, [1] * 16)
    (end,) = finished(cell.run())
    assert end.cached_tokens == ()


def test_others_take_its_sequences():
    cell = SleepCell(can_sleep=True)
    other = worker_info(2)
    cell.core.attach_worker(other)
    for number in (1, 2, 3):
        cell.submit(number, [number] * 4)
    cell.order()
    cell.submit(4, [4] * 4)
    cell.attach(ASLEEP)
    placed = {r.sequences[0].placement.worker for r in cell.core.requests.values()}
    assert {worker.info.worker_id for worker in placed} == {other.worker_id}


def test_a_worker_that_leaves_is_not_sent_to_sleep():
    cell = SleepCell(can_sleep=True)
    cell.core.drain_worker(cell.info.worker_id)
    cell.order()
    assert cell.state.duty.sleep_order is None
    assert cell.core.is_drained(cell.info.worker_id)


def test_an_idle_worker_sleeps_and_the_next_request_wakes_it():
    cell = SleepCell(can_sleep=True, sleep_after=5.0)
    cell.submit(1, [1] * 4)
    cell.tick(100.0)
    assert cell.state.duty.sleep_order is None
    cell.run()
    cell.tick(101.0)
    cell.tick(105.5)
    assert cell.state.duty.sleep_order is None
    cell.tick(106.5)
    assert cell.state.duty.sleep_order == SleepOrder(wakes_on_request=True)
    cell.attach(replace(ASLEEP, wakes_on_request=True))
    cell.tick(107.0)
    assert cell.wakes() == []
    cell.submit(2, [2] * 4)
    cell.tick(107.1)
    assert cell.wakes() == [(cell.info.worker_id, ALL_TAGS)]
    cell.tick(107.2)
    assert cell.wakes() == [], "it wakes already"
    cell.attach()
    assert len(finished(cell.run())) == 1


def test_a_wake_that_fails_is_tried_again_later():
    cell = SleepCell(can_sleep=True, sleep_after=5.0)
    cell.attach(replace(ASLEEP, wakes_on_request=True))
    cell.submit(1, [1] * 4)
    cell.tick(10.0)
    assert len(cell.wakes()) == 1
    failed = replace(ASLEEP, wakes_on_request=True, error=UnavailableError("no memory"))
    cell.core.sleeping.note(cell.state, failed)
    cell.tick(15.0)
    assert cell.wakes() == []
    cell.tick(20.5)
    assert len(cell.wakes()) == 1


def test_only_an_operator_wakes_a_worker_that_an_operator_let_sleep():
    cell = SleepCell(can_sleep=True, sleep_after=5.0)
    cell.attach(ASLEEP)
    cell.submit(1, [1] * 4, deadline=30.0)
    cell.tick(20.0)
    assert cell.wakes() == []
    (event,) = cell.tick(31.0)
    assert isinstance(event.error, DeadlineError)
    assert str(event.error) == "the deadline passed while all workers of tiny sleep"
    cell.core.sleeping.wake(cell.state, ALL_TAGS)
    assert len(cell.wakes()) == 1
    assert cell.state.duty.is_about_to_return


def test_workers_wake_one_by_one_while_sequences_wait():
    cell = SleepCell(can_sleep=True, sleep_after=50.0, max_num_seqs=1)
    for number in (2, 3):
        asleep = replace(ASLEEP, wakes_on_request=True)
        cell.core.attach_worker(
            worker_info(number, can_sleep=True, sleep_after=50.0, sleep=asleep, max_num_seqs=1)
        )
    for number in (1, 2, 3):
        cell.submit(number, [number] * 4, sampling=LONG)
    cell.planned()
    cell.tick(1.0)
    assert len(cell.wakes()) == 1
    cell.tick(2.0)
    assert cell.wakes() == []


@pytest.mark.parametrize("state", [MemoryState.ASLEEP, MemoryState.WAKING])
def test_topology_says_where_it_is(state):
    cell = SleepCell(can_sleep=True)
    cell.order()
    (entry,) = cell.core.topology().workers
    assert entry.sleep.state is MemoryState.DRAINING
    cell.attach(replace(ASLEEP, state=state))
    (entry,) = cell.core.topology().workers
    assert entry.sleep.state is state
    cell.attach()
    (entry,) = cell.core.topology().workers
    assert entry.sleep is None
