"""Prompts computed on one worker and handed to another: the way it should go, and every other."""

import pytest
from unit.scheduler.cell import finished
from unit.scheduler.handoff_cell import (
    DECODE,
    PREFILL,
    PROMPT,
    D,
    E,
    HandoffCell,
    P,
    exchanging,
)

from pagewire_scheduler.core.data.events import TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.kv.load import LoadOutcome, WorkerSource
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.result import StepFailure


def test_a_prompt_is_computed_on_one_worker_and_generated_on_the_other() -> None:
    cell = HandoffCell()
    cell.submit(1)
    assert cell.sequence(1).state is State.WAITING_FOR_REMOTE_KV
    assert cell.plan(D) is None
    plan = cell.plan(P)
    assert plan is not None
    assert (plan.starts, plan.num_new_tokens, plan.samples) == ([0], [16], [0])
    assert plan.new_sequences[0].prompt_token_ids == tuple(PROMPT[:16])
    order = cell.order()  # while the prefill runs
    assert order.names == tuple(plan.names)
    assert order.worker == WorkerSource("unix:/w1", P)
    assert cell.answer(P, plan) == []
    cell.finish(order)
    assert not any(cell.worker(P).pool.ref_counts), "the lease ends with the answer"
    plan = cell.plan(D)
    assert plan is not None
    assert (plan.starts, plan.num_new_tokens, plan.samples) == ([16], [1], [1])
    (event,) = cell.answer(D, plan)
    assert isinstance(event, TokensEvent)
    assert event.num_cached_tokens == 0, "they were computed for it"
    assert len(finished(cell.run_out())) == 1
    assert cell.plan(P) is not None, "the slot is told as freed"
    assert cell.is_clean


def test_the_source_keeps_what_it_computed_until_the_receiver_has_it() -> None:
    cell = HandoffCell()
    cell.submit(1)
    cell.step(P)
    held = [block for block, count in enumerate(cell.worker(P).pool.ref_counts) if count]
    assert len(held) == 4
    order = cell.order()
    cell.tick(0.5)
    assert sum(cell.worker(P).pool.ref_counts) == 4
    cell.finish(order)
    assert not any(cell.worker(P).pool.ref_counts)


def test_what_the_source_had_counts_as_cached() -> None:
    cell = HandoffCell()
    cell.submit(1, sampling=SamplingParams(max_tokens=1))
    cell.step(P)
    cell.finish(cell.order())
    cell.run_out()
    cell.core.kv_caches.reset(None)
    cell.run_out(P)
    # The source's cache was emptied, too: the next computes half of it again for another.
    cell.submit(2, PROMPT[:9], sampling=SamplingParams(max_tokens=1))
    cell.step(P)
    cell.finish(cell.order())
    cell.run_out()
    cell.worker(D).drop_prefix_cache()
    cell.run_out()
    cell.submit(3, sampling=SamplingParams(max_tokens=1))
    plan = cell.plan(P)
    assert plan is not None
    assert plan.starts == [8]
    order = cell.order()
    cell.answer(P, plan)
    cell.finish(order)
    (event, _) = cell.step(D)
    assert isinstance(event, TokensEvent)
    assert event.num_cached_tokens == 8
    assert cell.timelines[-1].timeline.cached_tokens == (("worker", 8),)


def test_a_source_that_was_never_measured_takes_its_turn() -> None:
    cell = HandoffCell(exchanging(1, PREFILL), exchanging(3, PREFILL), exchanging(2, DECODE))
    cell.submit(1)
    cell.step(P, model_time_us=1000)
    assert cell.worker(P).loads.prefill.seconds_per_token is not None
    for number in (2, 3):
        cell.submit(number, [number, *PROMPT])
    begun = [cell.handoff(number) for number in (2, 3)]
    assert [one.source for one in begun if one] == [cell.worker(P), cell.worker(E)]


def test_a_prompt_that_the_source_has_is_pulled_at_once() -> None:
    cell = HandoffCell()
    cell.submit(1, sampling=SamplingParams(max_tokens=1))
    cell.step(P)
    cell.finish(cell.order())
    cell.run_out()
    cell.worker(D).drop_prefix_cache()
    cell.submit(2, sampling=SamplingParams(max_tokens=1))
    cell.run_out(P)
    cell.run_out(D)
    cell.finish(cell.order())
    (event, _) = cell.run_out(D)
    assert isinstance(event, TokensEvent)
    assert event.num_cached_tokens == 16


@pytest.mark.parametrize("num_blocks", [0, 1, 3])
@pytest.mark.parametrize("outcome", [LoadOutcome.LATE, LoadOutcome.FAILED, LoadOutcome.MISSING])
def test_what_does_not_come_is_computed(num_blocks: int, outcome: LoadOutcome) -> None:
    cell = HandoffCell()
    cell.submit(1)
    cell.step(P)
    cell.finish(cell.order(), num_blocks, outcome)
    plan = cell.plan(D)
    assert plan is not None
    assert plan.starts == [4 * num_blocks]
    cell.answer(D, plan)
    assert len(finished(cell.run_out())) == 1
    cell.plan(P)
    assert cell.is_clean


@pytest.mark.parametrize("moment", ["queued", "computing", "held"])
def test_the_source_is_lost(moment: str) -> None:
    cell = HandoffCell()
    cell.submit(1)
    order = None
    if moment != "queued":
        plan = cell.plan(P)
        order = cell.order()
        if moment == "held":
            assert plan is not None
            cell.answer(P, plan)
    cell.detach(P)
    if order is not None:
        assert cell.core.kv_caches.take_cancelled_loads(D) == [order.load_id]
        assert cell.plan(D) is None, "the receiver says what has come"
        cell.finish(order, 1, LoadOutcome.CANCELLED)
    plan = cell.plan(D)
    assert plan is not None
    assert plan.starts == [0 if order is None else 4]
    cell.answer(D, plan)
    assert len(finished(cell.run_out())) == 1
    assert cell.is_clean


@pytest.mark.parametrize("moment", ["queued", "computing", "held"])
def test_the_receiver_is_lost(moment: str) -> None:
    cell = HandoffCell(exchanging(1, PREFILL), exchanging(2, DECODE), exchanging(3, DECODE))
    cell.submit(1)
    first = cell.sequence(1).placement.worker
    assert first is not None
    lost = first.info.worker_id
    plan = cell.plan(P) if moment != "queued" else None
    if plan is not None and moment == "held":
        cell.answer(P, plan)
    cell.detach(lost)
    other = cell.sequence(1).placement.worker
    assert other is not None
    assert other.info.worker_id in {D, E} - {lost}
    if plan is not None and moment == "computing":
        cell.answer(P, plan)
    cell.run_out(P)
    cell.plan(other.info.worker_id)
    assert sum(cell.worker(P).pool.ref_counts) == 4
    cell.finish(cell.order(other.info.worker_id), worker_id=other.info.worker_id)
    assert len(finished(cell.run_out(other.info.worker_id))) == 1


def test_a_failing_prefill_leaves_the_prompt_to_the_receiver() -> None:
    cell = HandoffCell()
    cell.submit(1)
    for _ in range(2):  # a fault of the moment is nobody's
        plan = cell.plan(P)
        assert plan is not None
        cell.answer(P, plan, failure=StepFailure("broken"), slots=[], counts=[], token_ids=[])
    order = cell.order()
    assert cell.core.kv_caches.take_cancelled_loads(D) == [order.load_id]
    cell.finish(order, 0, LoadOutcome.CANCELLED)
    assert len(finished(cell.run_out())) == 1
    cell.plan(P)
    assert cell.is_clean


@pytest.mark.parametrize("moment", ["queued", "computing", "held"])
def test_the_client_goes_away(moment: str) -> None:
    cell = HandoffCell()
    cell.submit(1)
    plan = cell.plan(P) if moment != "queued" else None
    if plan is not None and moment == "held":
        cell.answer(P, plan)
    cell.core.abort(b"f" * 16, 1, None)
    if plan is not None:
        (order,) = cell.orders()
        assert cell.core.kv_caches.take_cancelled_loads(D) == [order.load_id]
        cell.finish(order, 0, LoadOutcome.CANCELLED)
        if moment == "computing":
            cell.answer(P, plan)
    cell.plan(P)
    assert cell.is_clean
    assert not cell.core.requests


def test_nobody_waits_beyond_the_deadline() -> None:
    cell = HandoffCell()
    cell.submit(1)
    (handoff,) = cell.worker(D).handoffs.incoming.values()
    cell.tick(handoff.deadline - cell.now)  # the prefill was never started
    assert not cell.worker(P).num_sequences
    assert len(finished(cell.run_out())) == 1
    assert cell.is_clean


def test_an_answer_that_does_not_come_is_given_up() -> None:
    cell = HandoffCell()
    cell.submit(1)
    cell.step(P)
    order = cell.order()
    cell.tick(order.timeout_ms / 1000 + 1.1)
    assert len(finished(cell.run_out())) == 1
    assert not any(cell.worker(P).pool.ref_counts)
    cell.finish(order, 0, LoadOutcome.FAILED)
    cell.plan(P)
    assert cell.is_clean


def test_choices_share_one_hand_off() -> None:
    cell = HandoffCell()
    cell.submit(1, emitted=((), (), ()))
    cell.step(P)
    cell.finish(cell.order())
    plan = cell.plan(D)
    assert plan is not None
    assert plan.fork_slots == [1, 2]
    cell.answer(D, plan)
    assert len(finished(cell.run_out())) == 3


def test_vectors_are_made_where_prompts_are_computed() -> None:
    model = exchanging(1, PREFILL).model
    cell = HandoffCell()
    assert model.embedding_size == 0
    cell.submit(1, pooling=PoolingParams(), sampling=SamplingParams(max_tokens=1))
    assert not cell.core.requests, "this model makes none"


def test_two_prompts_that_begin_alike_bring_the_beginning_once() -> None:
    cell = HandoffCell()
    cell.submit(1)
    cell.submit(2, [*PROMPT[:16], 30, 31, 32, 33, 34])
    cell.step(P)
    first = cell.order()
    cell.plan(D)
    assert cell.orders() == [], "it waits for the beginning that another brings"
    cell.finish(first)
    cell.plan(D)
    second = cell.order()
    assert len(second.names) == 1
    cell.finish(second)


def test_times_do_not_overlap() -> None:
    cell = HandoffCell()
    cell.submit(1)
    for event in (lambda: cell.step(P), lambda: cell.finish(cell.order()), lambda: cell.step(D)):
        cell.tick(0.25)
        event()
    timeline = cell.timelines[-1].timeline
    assert timeline.is_handed_off
    assert timeline.transport is KvTransport.GRPC
    assert (timeline.queue_seconds, timeline.transfer_seconds) == (0.25, 0.25)
    assert timeline.prefill_seconds == pytest.approx(0.25)
    assert timeline.transfer_bytes == 4000
