"""Weights that are exchanged, as the core sees it: what is held, what ends, and who is ordered."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import FRONTEND, Cell, finished, submission
from unit.scheduler.hellos import MODEL, worker_info

from pagewire_scheduler.core.data.events import BegunEvent, TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.frontend import Held
from pagewire_scheduler.peers.peers import check_worker, models_beside
from pagewire_shared.errors import PeerRefusedError, UnavailableError, WeightsChangedError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sleep.state import MemoryState, SleepMode, SleepOrder, WorkerSleep
from pagewire_shared.weights.version import (
    STARTED,
    UpdateMode,
    UpdateOrder,
    WeightsSource,
    WeightsVersion,
)

NAME = MODEL.name
LONG = SamplingParams(max_tokens=20)
OLD = WeightsVersion(MODEL.model_fingerprint)
NEW = WeightsVersion(b"n" * 32, label="step 2")
SOURCE = WeightsSource(path="/step-2", label="step 2", serial=7)
LOADING = WorkerSleep(state=MemoryState.WAKING, level=1)


def with_weights(info, version=NEW, source=SOURCE, **changes):
    model = replace(info.model, model_fingerprint=version.fingerprint)
    return replace(info, model=model, source=source, incarnation=info.incarnation + 1, **changes)


class UpdatedCell(Cell):
    """A cell whose worker takes other weights."""

    def __init__(self, **changes):
        super().__init__(source=STARTED, **changes)
        self.updating = self.core.updating

    @property
    def state(self):
        return self.core.workers[self.info.worker_id]

    def hold(self, mode=UpdateMode.WAIT):
        return self.core.conclude(self.updating.hold(NAME, mode))

    def release(self):
        return self.core.enter(self.updating.release(NAME))

    def attach(self, info):
        self.core.detach_worker(self.info.worker_id)
        self.info = info
        return self.core.attach_worker(info)

    def update(self):
        """All steps of an update of a cell with nothing under way."""
        self.hold()
        assert self.updating.let_go(NAME)
        self.updating.set_newest(NAME, SOURCE, NEW)
        events = self.attach(replace(self.info, sleep=LOADING))
        events += self.attach(with_weights(replace(self.info, sleep=None)))
        return [*events, *self.release()]


def begun(events):
    return [event for event in events if isinstance(event, BegunEvent)]


def test_a_request_is_bound_to_the_weights_of_its_first_output():
    cell = UpdatedCell()
    cell.submit(1, [1] * 30)
    events = []
    while (plan := cell.plan()) is not None:
        events += cell.core.apply(cell.info.worker_id, cell.result(plan))
    kinds = [type(event) for event in events]
    assert [one.weights for one in begun(events)] == [OLD]
    assert kinds.index(BegunEvent) < kinds.index(TokensEvent)


def test_a_held_model_finishes_what_has_begun_and_starts_nothing():
    cell = UpdatedCell()
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.answer(cell.planned())
    assert cell.hold() == []
    cell.submit(2, [2] * 4)
    assert not cell.updating.let_go(NAME)
    ends = finished(cell.run())
    assert [(one.request_id, one.state) for one in ends] == [
        (submission(1, [1]).request_id, State.FINISHED_LENGTH)
    ]
    assert cell.updating.let_go(NAME)
    cell.release()
    assert len(finished(cell.run())) == 1


def test_what_waits_on_a_worker_leaves_it_when_the_model_is_held():
    cell = UpdatedCell(max_num_seqs=1)
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.answer(cell.planned())
    cell.submit(2, [2] * 4)
    assert len(cell.state.waiting) == 1
    cell.hold()
    assert len(cell.state.waiting) == 0
    assert cell.core.queues.num_unplaced(NAME) == 1


def test_abort_ends_what_has_begun_and_nothing_else():
    cell = UpdatedCell()
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.answer(cell.planned())
    cell.submit(2, [2] * 4)
    plan = cell.planned()
    (end,) = finished(cell.hold(UpdateMode.ABORT))
    assert isinstance(end.error, WeightsChangedError)
    assert end.state is State.FINISHED_ABORTED
    assert not cell.updating.let_go(NAME)
    assert cell.plan() is None
    cell.answer(plan)
    assert cell.updating.let_go(NAME)
    (end,) = finished(cell.core.conclude(cell.updating.end_late(NAME)))
    assert isinstance(end.error, WeightsChangedError), "it got a token while the step was out"


def test_an_update_leaves_no_block_of_the_old_version():
    cell = UpdatedCell()
    cell.submit(1, [1] * 16)
    cell.run()
    assert len(cell.state.pool.cache) > 0
    cell.hold()
    cell.submit(2, [1] * 16)
    cell.update()
    assert len(cell.state.pool.cache) == 0
    (end,) = finished(cell.run())
    assert end.cached_tokens == ()
    assert cell.core.requests == {}


def test_the_order_names_folder_and_fingerprint():
    cell = UpdatedCell()
    cell.updating.set_newest(NAME, SOURCE, NEW)
    assert cell.state.duty.update == UpdateOrder(SOURCE, NEW.fingerprint)
    assert cell.core.sleeping.is_due(cell.state)
    assert cell.plan() is None


def test_output_of_old_weights_does_not_go_on_with_new_ones():
    cell = UpdatedCell()
    cell.update()
    fields = {"emitted": ([5, 6],), "is_finished": (False,), "weights": OLD}
    (end,) = finished(cell.submit(3, [3] * 4, **fields))
    assert isinstance(end.error, WeightsChangedError)
    assert "step 2" in end.error.message
    cell.submit(4, [3] * 4, **{**fields, "weights": NEW})
    (end,) = finished(cell.run())
    assert end.error is None


def test_output_that_waits_for_a_worker_ends_when_only_newer_weights_come():
    cell = UpdatedCell()
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.answer(cell.planned())
    cell.core.detach_worker(cell.info.worker_id)
    (end,) = finished(cell.core.attach_worker(with_weights(worker_info(2))))
    assert isinstance(end.error, WeightsChangedError)


def test_fingerprints_of_two_ways_exclude_nothing():
    cell = UpdatedCell()
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.answer(cell.planned())
    cell.core.detach_worker(cell.info.worker_id)
    other = with_weights(worker_info(2))
    other = replace(other, model=replace(other.model, fingerprint_version=3))
    assert finished(cell.core.attach_worker(other)) == []


def test_a_worker_that_starts_anew_is_ordered_to_load_the_newest():
    cell = UpdatedCell()
    cell.update()
    late = worker_info(2, source=STARTED)
    cell.core.attach_worker(late)
    duty = cell.core.workers[late.worker_id].duty
    assert duty.update == UpdateOrder(SOURCE, NEW.fingerprint)
    assert not duty.takes_new
    ((model, _),) = cell.core.models()
    assert model.model_fingerprint == NEW.fingerprint
    cell.submit(5, [1] * 4)
    assert len(finished(cell.run())) == 1, "the other one computes"


def test_newer_weights_of_a_worker_make_those_before_it_old():
    cell = UpdatedCell()
    cell.core.attach_worker(with_weights(worker_info(2)))
    assert cell.state.duty.update == UpdateOrder(SOURCE, NEW.fingerprint)
    assert cell.updating.newest(NAME).version == NEW


def test_an_update_that_failed_is_tried_again_later():
    cell = UpdatedCell()
    cell.update()
    error = UnavailableError("no memory")
    late = worker_info(2, source=STARTED, failed_update=(SOURCE.serial, error))
    cell.core.attach_worker(late)
    duty = cell.core.workers[late.worker_id].duty
    assert duty.is_paused
    assert duty.update is None
    cell.now = 11.0
    cell.core.tick(cell.now)
    assert duty.update == UpdateOrder(SOURCE, NEW.fingerprint)


def test_after_going_back_workers_with_the_old_weights_compute_again():
    cell = UpdatedCell()
    cell.hold()
    cell.updating.set_newest(NAME, SOURCE, NEW)
    failed = (SOURCE.serial, UnavailableError("no memory"))
    cell.attach(replace(cell.info, failed_update=failed, incarnation=9))
    assert cell.state.duty.is_paused
    cell.updating.set_newest(NAME, WeightsSource(serial=8), OLD)
    cell.release()
    cell.submit(1, [1] * 4)
    assert len(finished(cell.run())) == 1


def test_an_equal_serial_with_other_weights_is_refused():
    known = worker_info(1, source=STARTED)
    same = with_weights(worker_info(2), source=STARTED)
    with pytest.raises(PeerRefusedError, match="model_fingerprint"):
        check_worker(same, models_beside(same, [known]), [])
    newer = with_weights(worker_info(2))
    check_worker(newer, models_beside(newer, [known]), [])
    old_release = worker_info(3)
    with pytest.raises(PeerRefusedError, match="model_fingerprint"):
        check_worker(old_release, models_beside(old_release, [newer]), [])


def test_a_frontend_that_attaches_again_hears_of_the_weights():
    cell = UpdatedCell()
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.answer(cell.planned())
    cell.core.detach_frontend(FRONTEND, 1.0)
    held = Held(submission(1, [1]).request_id, 0, 77, (0,))
    _, events = cell.core.attach_frontend(FRONTEND, [held], is_same_generation=True)
    assert events[0] == BegunEvent(FRONTEND, 77, 0, OLD)


def test_a_worker_with_new_weights_pulls_no_sequence_of_old_ones():
    cell = UpdatedCell(max_num_seqs=1)
    cell.submit(1, [1] * 4, sampling=LONG)
    cell.submit(2, [2] * 4, emitted=([5],), is_finished=(False,), weights=OLD, sampling=LONG)
    plan = cell.planned()
    other = with_weights(worker_info(2))
    cell.core.attach_worker(other)
    assert cell.state.duty.is_paused
    assert cell.core.plan(other.worker_id) is None
    (waiting,) = cell.state.waiting
    assert waiting.request.weights == OLD
    cell.answer(plan)
    ends = finished(cell.core.detach_worker(cell.info.worker_id))
    assert {type(end.error) for end in ends} == {WeightsChangedError}


def test_choices_that_waited_go_on_once_their_request_has_begun():
    cell = UpdatedCell(max_num_seqs=1)
    cell.submit(1, [1] * 4, sampling=LONG.with_(n=2), emitted=([], []), is_finished=(False, False))
    plan = cell.planned()
    cell.answer(plan)
    second = cell.core.requests[submission(1, [1]).request_id].sequences[1]
    assert second.placement.worker is not None
    cell.hold()
    assert not cell.updating.let_go(NAME)
    assert len(finished(cell.run())) == 2
    assert cell.updating.let_go(NAME)


def test_an_order_to_sleep_does_not_wait_for_a_paused_worker():
    cell = UpdatedCell(can_sleep=True)
    cell.submit(1, [1] * 20, sampling=LONG)
    cell.answer(cell.planned())
    cell.core.sleeping.order(cell.state, SleepOrder(mode=SleepMode.WAIT))
    cell.hold(UpdateMode.ABORT)
    assert cell.core.sleeping.is_due(cell.state)
