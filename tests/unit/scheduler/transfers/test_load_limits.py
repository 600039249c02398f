"""What loads may not do: take what others need, outlive their worker, bring back what was
forgotten, be ordered where they lose or fail."""

import pytest
from unit.scheduler.cell import finished
from unit.scheduler.hellos import worker_info
from unit.scheduler.loading_cell import PROMPT, STORE, LoadingCell

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.costs.load_cost import LoadReason
from pagewire_scheduler.core.data.settings import LoadCounts
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.planning.schedule_waiting import MAX_SKIPS
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.transfers.loading import order_loads
from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan


def measured(cell: LoadingCell, bytes_per_second: float) -> None:
    """Let the core know what a token costs, 1 ms, and how fast the link is."""
    cell.worker.loads.prefill.note(1000, 1, 1.0)
    cell.worker.loads.link(STORE).measure(10**6, 0, 0.003 + 1e6 / bytes_per_second, 0.0)


def test_a_link_that_loses_is_not_used_and_one_that_wins_is() -> None:
    # 16 tokens take 16 ms; a load has 8 ms, 3 of them for itself, for 4,000 bytes.
    for speed, verdict in ((1e6, LoadReason.FASTER), (6e5, LoadReason.SLOWER)):
        cell = LoadingCell()
        measured(cell, speed)
        cell.store(PROMPT)
        cell.submit(1, PROMPT)
        orders = cell.orders()
        assert [order.timeout_ms for order in orders] == ([8] if verdict.is_load else [])
        assert cell.core.counts.loads.verdicts == {verdict: 1}
        cell.plan()
        assert cell.core.counts.loads.verdicts == {verdict: 1}, "one decision per stay"


def test_prefill_is_measured_by_steps_and_links_by_answers() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    cell.finish(cell.order(), num_bytes=4000, seconds=0.043)
    assert cell.worker.loads.link(STORE).seconds(1000) == pytest.approx(0.013)
    cell.run()
    cell.submit(2, list(range(20, 38)))
    cell.answer(cell.planned(), model_time_us=18_000)
    assert cell.worker.loads.prefill.seconds(1000) == 1.0


def test_two_failures_and_the_store_is_left_alone() -> None:
    cell = LoadingCell()
    for number in range(1, 5):
        prompt = [number, *PROMPT]
        cell.store(prompt)
        cell.submit(number, prompt)
        for order in cell.orders():
            cell.finish(order, 0, LoadOutcome.FAILED)
        cell.run()
    assert cell.core.counts.loads.outcomes == {LoadOutcome.FAILED: 2}
    assert cell.core.counts.loads.verdicts[LoadReason.BROKEN] == 2
    cell.tick(1.0)
    cell.submit(5, [1, *PROMPT[:9]])
    cell.core.kv_caches.reset(None)
    assert len(cell.orders()) == 1


def test_a_lost_worker_takes_its_loads_along() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    cell.order()
    other = worker_info(2, loads_blocks=True)
    cell.core.detach_worker(cell.info.worker_id)
    assert cell.sequence(1).state is State.WAITING
    cell.core.attach_worker(other)
    cell.core.plan(other.worker_id)
    check_integrity(cell.core)
    assert len(cell.core.kv_caches.take_loads(other.worker_id)) == 1, "it may load anew elsewhere"


def test_who_waits_for_a_load_leaves_a_draining_worker() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    order = cell.order()
    other = worker_info(2)
    cell.core.attach_worker(other)
    cell.core.drain_worker(cell.info.worker_id)
    check_integrity(cell.core)
    assert cell.sequence(1).placement.worker is cell.core.workers[other.worker_id]
    assert cell.cancelled() == [order.load_id]
    assert cell.core.plan(other.worker_id) is not None


def test_what_was_forgotten_does_not_come_back() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    order = cell.order()
    cell.core.kv_caches.reset(None)
    cell.finish(order)
    assert len(cell.worker.pool.cache) == 0
    plan = cell.planned()
    assert plan.starts == [0]
    told = {*plan.named_blocks, *(plan.new_sequences[0].block_ids)}
    assert told >= set(order.blocks), "the worker forgets them, too"


def test_loads_take_only_what_is_free() -> None:
    cell = LoadingCell(num_blocks=12)
    cell.submit(1, list(range(20, 38)), sampling=SamplingParams(max_tokens=6))
    cell.answer(cell.planned())
    cell.store(PROMPT)
    cell.submit(2, PROMPT)
    # 12 blocks, 5 in use, one that the running one may need and one to start in.
    order = cell.order()
    assert len(order.blocks) == 4
    cell.submit(3, [9, *PROMPT])
    cell.core.stores.stored(STORE, cell.names([9, *PROMPT]))
    assert cell.orders() == [], "that is less than a load is worth"


def test_loads_hold_at_most_a_share_of_the_pool() -> None:
    cell = LoadingCell(num_blocks=6)
    cell.store(PROMPT)
    cell.submit(1, PROMPT, sampling=SamplingParams(max_tokens=2))
    order = cell.order()
    assert len(order.blocks) == 3
    cell.finish(order)
    assert cell.planned().starts == [12]


def test_an_older_one_that_cannot_go_on_stops_the_loads_of_younger_ones() -> None:
    cell = LoadingCell(num_blocks=8)
    cell.submit(1, PROMPT[:3], sampling=SamplingParams(max_tokens=25))
    cell.answer(cell.planned())
    cell.store([9, *PROMPT])
    cell.submit(2, [9, *PROMPT])
    orders, cancelled, plans = [], [], []
    for _ in range(40):
        plan = cell.plan()
        orders += cell.core.kv_caches.take_loads(cell.info.worker_id)
        cancelled += cell.cancelled()
        if plan is not None:
            plans.append(plan)
        elif plans:
            cell.answer(plans.pop(0))
        else:
            break
    (order,) = orders
    assert cancelled == [order.load_id]
    cell.finish(order, 0, LoadOutcome.CANCELLED)
    assert len(finished(cell.run())) == 2


def test_a_step_that_still_copies_from_a_free_block_is_awaited() -> None:
    cell = LoadingCell()
    copying = StepPlan(3, cell.info.incarnation, 0, copy_sources=[0])
    cell.worker.outstanding.append(OutstandingStep(copying))
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    order_loads(cell.worker, cell.core.stores, LoadCounts(), 0.0)
    assert cell.sequence(1).state is State.WAITING
    cell.worker.outstanding.clear()
    order_loads(cell.worker, cell.core.stores, LoadCounts(), 0.0)
    assert cell.sequence(1).state is State.WAITING_FOR_REMOTE_KV


def test_placement_prefers_who_has_it_and_counts_what_can_be_loaded() -> None:
    cell = LoadingCell()
    cell.submit(1, PROMPT, sampling=SamplingParams(max_tokens=1))
    cell.run()
    other = worker_info(2, loads_blocks=True, bytes_per_block=1000)
    cell.core.attach_worker(other)
    cell.store(PROMPT)
    cell.submit(2, PROMPT)
    assert cell.sequence(2).placement.worker is cell.worker
    assert cell.sequence(2).placement.num_expected == 1
    cell.core.detach_worker(cell.info.worker_id)
    assert cell.sequence(2).placement.worker is cell.core.workers[other.worker_id]
    assert cell.sequence(2).placement.num_expected == 17 - 8


def test_placement_counts_no_load_that_would_lose() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    loads = cell.worker.loads
    loads.prefill.note(1000, 1, 1.0)
    loads.link(STORE).measure(4000, 0, 1.0, cell.core.now)
    cell.submit(1, PROMPT)
    assert cell.sequence(1).placement.num_expected == len(PROMPT)
    for _ in range(40):
        loads.link(STORE).measure(4000, 0, 0.003, cell.core.now)
    cell.submit(2, PROMPT)
    assert cell.sequence(2).placement.num_expected == len(PROMPT) - 8
    loads.link(STORE).breaker.fail(cell.core.now)
    loads.link(STORE).breaker.fail(cell.core.now)
    cell.submit(3, PROMPT)
    assert cell.sequence(3).placement.num_expected == len(PROMPT)


def test_beams_and_choices_share_a_load() -> None:
    cell = LoadingCell(max_num_batched_tokens=40)
    cell.store(PROMPT)
    cell.submit(1, PROMPT, emitted=((), (), ()), sampling=SamplingParams(max_tokens=3, n=3))
    order = cell.order()
    assert cell.core.queues.num_waiting == 3
    cell.finish(order)
    ends = finished(cell.run())
    assert [end.cached_tokens for end in ends] == [(("memory", 16),)] * 3


def test_a_window_loads_no_more_than_is_found_again() -> None:
    cell = LoadingCell(num_blocks=8, groups=CacheGroups((8,)))
    prompt = list(range(1, 40))
    cell.store(prompt)
    cell.submit(1, prompt, sampling=SamplingParams(max_tokens=2))
    order = cell.order()
    assert len(order.blocks) == 4
    cell.finish(order)
    assert cell.planned().starts == [16]
    cell.submit(2, PROMPT)
    check_integrity(cell.core)


def test_nobody_loads_past_one_that_was_passed_often_enough() -> None:
    cell = LoadingCell(num_blocks=16)
    cell.submit(1, list(range(20, 38)), sampling=SamplingParams(max_tokens=4))
    cell.planned()
    cell.submit(2, [*PROMPT, *range(18, 38)])
    cell.sequence(2).fairness.num_skipped = MAX_SKIPS
    cell.store([9, *PROMPT])
    cell.submit(3, [9, *PROMPT])
    order_loads(cell.worker, cell.core.stores, LoadCounts(), 0.0)
    assert cell.sequence(3).state is State.WAITING
    cell.sequence(2).fairness.num_skipped = 0
    order_loads(cell.worker, cell.core.stores, LoadCounts(), 0.0)
    assert cell.sequence(3).state is State.WAITING_FOR_REMOTE_KV


def test_a_name_taken_meanwhile_leaves_a_block_without_one() -> None:
    cell = LoadingCell(num_blocks=30)
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    order = cell.order()
    cell.tick(3.1)  # it is overdue, so another computes the same
    cell.run()
    cell.finish(order)
    assert len(cell.worker.pool.cache) == 5
    assert cell.worker.pool.num_free == 30
    void = cell.planned()
    assert set(void.named_blocks) == set(order.blocks)
