"""A sequence waits for blocks that a store sends, finds them and computes only the rest."""

import pytest
from unit.scheduler.cell import FRONTEND, finished
from unit.scheduler.loading_cell import PROMPT, STORE, LoadingCell

from pagewire_scheduler.core.audit import audit
from pagewire_scheduler.core.blocks.block_pool import BlockState
from pagewire_scheduler.core.costs.load_cost import LoadReason
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.transfers.loading import MAX_LOADS
from pagewire_shared.errors import WireError
from pagewire_shared.kv.load import LoadAnswer, LoadOutcome
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NO_SLOT


def loading() -> LoadingCell:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    return cell


def test_stored_blocks_are_loaded_and_not_computed() -> None:
    cell = loading()
    order = cell.order()
    assert (order.store, order.timeout_ms) == (STORE, 2000)
    assert order.names == tuple(cell.names(PROMPT))
    sequence = cell.sequence(1)
    assert sequence.state is State.WAITING_FOR_REMOTE_KV
    assert {cell.worker.pool.state(block) for block in order.blocks} == {BlockState.PRIVATE}
    assert cell.plan() is None, "it waits"
    cell.finish(order)
    plan = cell.planned()
    assert (plan.starts, plan.num_new_tokens) == ([16], [1])
    assert plan.new_sequences[0].block_ids[:4] == order.blocks
    cell.answer(plan)
    (end,) = finished(cell.run())
    assert end.cached_tokens == (("memory", 16),)
    assert cell.cancelled() == []


def test_the_last_token_is_computed_even_when_all_is_stored() -> None:
    cell = LoadingCell()
    cell.store(PROMPT[:16])
    cell.submit(1, PROMPT[:16])
    assert len(cell.order().names) == 3


def test_what_is_there_is_kept_and_the_rest_is_loaded_behind_it() -> None:
    cell = LoadingCell(num_blocks=11)
    cell.submit(1, PROMPT[:9], sampling=SamplingParams(max_tokens=1))
    cell.run()
    cell.store(PROMPT)
    cell.submit(2, PROMPT)
    order = cell.order()
    assert order.names == tuple(cell.names(PROMPT)[2:])
    # Another takes all that is free, and the blocks in front of the load are still there.
    cell.submit(3, list(range(20, 40)), sampling=SamplingParams(max_tokens=12))
    events = cell.run()
    cell.finish(order, tiers=(("disk", 1), ("redis", 1)))
    events += cell.run()
    ends = {end.handle: end.cached_tokens for end in finished(events)}
    # The last one was taken between the answer and the start.
    assert ends == {2: (("worker", 8), ("disk", 4)), 3: ()}


def test_a_part_is_used_up_to_the_first_missing_block() -> None:
    cell = loading()
    order = cell.order()
    cell.finish(order, 2, LoadOutcome.MISSING)
    plan = cell.planned()
    assert cell.core.kv_caches.take_loads(cell.info.worker_id) == [], "no second load in this stay"
    assert (plan.starts, plan.num_new_tokens) == ([8], [9])
    assert cell.worker.pool.num_free == 24 - 5
    # The store is not asked for what it did not have.
    assert cell.core.stores.longest_runs(cell.names(PROMPT)) == [(STORE, 2)]


@pytest.mark.parametrize("outcome", [LoadOutcome.LATE, LoadOutcome.FAILED, LoadOutcome.MISSING])
def test_when_nothing_comes_it_is_computed(outcome: LoadOutcome) -> None:
    cell = loading()
    cell.finish(cell.order(), 0, outcome)
    plan = cell.planned()
    assert cell.core.kv_caches.take_loads(cell.info.worker_id) == []
    assert (plan.starts, plan.num_new_tokens) == ([0], [17])
    cell.answer(plan)
    (end,) = finished(cell.run())
    assert end.cached_tokens == ()
    assert cell.worker.pool.num_free == 24


def test_a_second_sequence_waits_for_the_same_load() -> None:
    cell = loading()
    cell.submit(2, [*PROMPT[:16], 30, 31])
    cell.submit(3, [5, 6, 7])
    order = cell.order()
    waiting = {number: cell.sequence(number).state for number in (1, 2, 3)}
    assert waiting == {
        1: State.WAITING_FOR_REMOTE_KV,
        2: State.WAITING_FOR_REMOTE_KV,
        3: State.RUNNING,
    }
    cell.finish(order)
    plan = cell.planned()
    assert [(new.request_id[0]) for new in plan.new_sequences] == [1, 2]
    assert plan.starts[-2:] == [16, 16]


def test_who_waited_for_nothing_computes() -> None:
    cell = loading()
    cell.submit(2, [*PROMPT[:16], 30, 31])
    cell.finish(cell.order(), 0, LoadOutcome.FAILED)
    assert cell.orders() == []
    assert [cell.sequence(number).state for number in (1, 2)] == [State.RUNNING] * 2


def test_who_waited_for_a_part_may_load_what_follows() -> None:
    cell = LoadingCell(num_blocks=40)
    longer = [*PROMPT[:16], *range(20, 33)]
    cell.store(PROMPT)
    cell.store(longer)
    cell.submit(1, PROMPT)
    cell.submit(2, longer)
    cell.finish(cell.order())
    order = cell.order()
    assert order.names == tuple(cell.names(longer)[4:])
    cell.finish(order, tiers=(("disk", 3),))
    ends = {end.handle: end.cached_tokens for end in finished(cell.run())}
    assert ends[2] == (("disk", 12), ("memory", 16))


def test_others_are_not_held_up() -> None:
    cell = loading()
    cell.submit(2, [7, 8, 9])
    plan = cell.planned()
    assert [new.request_id[0] for new in plan.new_sequences] == [2]


def test_without_a_store_that_is_up_nothing_is_loaded() -> None:
    for cell in (LoadingCell(is_up=False), LoadingCell(loads_blocks=False)):
        cell.store(PROMPT)
        cell.submit(1, PROMPT)
        assert cell.orders() == []
        assert cell.sequence(1).state is State.RUNNING
    cell = LoadingCell(is_caching=False)
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    assert cell.orders() == []


def test_what_was_told_last_counts() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.core.stores.removed(STORE, cell.names(PROMPT)[2:3])
    cell.submit(1, PROMPT)
    assert len(cell.order().names) == 2
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.core.stores.cleared(STORE)
    cell.submit(1, PROMPT)
    assert cell.orders() == []


def test_other_salts_share_nothing() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT, salt=b"x")
    assert cell.orders() == []


def test_a_load_that_nobody_waits_for_is_cancelled_and_keeps_its_blocks_until_the_answer() -> None:
    cell = loading()
    order = cell.order()
    assert cell.cancelled() == []
    cell.core.abort(FRONTEND, 1, None)
    assert cell.cancelled() == [order.load_id]
    assert cell.cancelled() == []
    assert cell.worker.pool.num_free == 20
    cell.finish(order, 3, LoadOutcome.CANCELLED)
    assert cell.worker.pool.num_free == 24
    assert len(cell.worker.pool.cache) == 3, "what came is there for others"


def test_an_overdue_load_holds_nobody_up() -> None:
    cell = loading()
    order = cell.order()
    cell.tick(2.9)
    assert cell.plan() is None
    cell.tick(0.2)
    plan = cell.planned()
    assert plan.starts == [0]
    assert cell.cancelled() == [order.load_id]
    assert not set(plan.new_sequences[0].block_ids) & set(order.blocks)
    cell.finish(order, 4, LoadOutcome.LATE)
    cell.answer(plan)
    cell.run()
    assert cell.worker.pool.num_free == 24
    assert cell.core.counts.loads.num_overdue == 1


def test_an_overdue_load_is_given_up_once() -> None:
    cell = loading()
    cell.order()
    for _ in range(3):
        cell.tick(3.1)
    assert cell.core.counts.loads.num_overdue == 1
    assert cell.worker.loads.link(STORE).breaker.allows_attempt(cell.now)


def test_tiers_of_a_connector_are_told_by_name_and_counted_together() -> None:
    cell = loading()
    cell.finish(cell.order(), 3, LoadOutcome.MISSING, tiers=(("lm-cache", 1), ("tape", 2)))
    assert set(cell.sequence(1).remote.loaded.values()) == {"lm-cache", "tape"}
    assert dict(cell.core.counts.loads.blocks) == {"other": 3}


def test_impossible_answers_change_nothing() -> None:
    cell = loading()
    order = cell.order()
    for answer in (
        LoadAnswer(order.load_id, 5, LoadOutcome.COMPLETE),
        LoadAnswer(order.load_id, 2, LoadOutcome.LATE, tiers=(("memory", 3),)),
        LoadAnswer(order.load_id, 2, LoadOutcome.LATE, tiers=(("memory", 1), ("memory", 1))),
        LoadAnswer(order.load_id, 2, LoadOutcome.LATE, tiers=(("worker", 2),)),
        LoadAnswer(order.load_id, 2, LoadOutcome.LATE, tiers=(("Tape", 2),)),
        LoadAnswer(order.load_id, 2, LoadOutcome.LATE, tiers=tuple((f"t{i}", 0) for i in range(9))),
        LoadAnswer(order.load_id, 2, LoadOutcome.LATE, seconds=float("inf")),
    ):
        with pytest.raises(WireError):
            cell.core.kv_caches.note_load(cell.info.worker_id, answer)
    unknown = LoadAnswer(order.load_id + 1, 99, LoadOutcome.COMPLETE)
    cell.core.kv_caches.note_load(cell.info.worker_id, unknown)
    assert cell.sequence(1).state is State.WAITING_FOR_REMOTE_KV
    cell.finish(order)
    cell.finish(order)
    assert cell.planned().starts == [16]


def test_names_say_whose_they_are() -> None:
    cell = LoadingCell()
    cell.submit(1, PROMPT[:9], tenant="a")
    plan = cell.planned()
    assert (len(plan.named_blocks), plan.named_slots) == (2, [0, 0])
    assert plan.new_sequences[0].tenant == "a"
    cell.answer(plan)
    cell.run()
    cell.core.kv_caches.reset(None)
    void = cell.planned()
    assert void.named_slots == [NO_SLOT] * len(void.named_blocks) != []


def test_decisions_and_outcomes_are_counted() -> None:
    cell = loading()
    cell.finish(cell.order(), 3, LoadOutcome.MISSING, tiers=(("disk", 1), ("redis", 2)))
    counts = cell.core.counts.loads
    assert counts.verdicts == {LoadReason.UNMEASURED: 1}
    assert counts.outcomes == {LoadOutcome.MISSING: 1}
    assert counts.blocks == {"disk": 1, "redis": 2}
    assert counts.tokens == {"disk": 4, "redis": 8}
    report = audit(cell.core).counts
    assert report == cell.core.counts
    counts.tokens["disk"] += 1
    assert report.loads.tokens["disk"] == 4, "a report is of its moment"


def test_loads_at_once_are_few() -> None:
    cell = LoadingCell(num_blocks=60)
    prompts = [[number, *range(1, 9)] for number in range(20, 28)]
    for number, prompt in enumerate(prompts):
        cell.store(prompt)
        cell.submit(number + 1, prompt)
    assert len(cell.orders()) == MAX_LOADS
    states = [cell.sequence(number + 1).state for number in range(8)]
    assert states.count(State.WAITING_FOR_REMOTE_KV) == MAX_LOADS


def test_loads_run_beside_steps() -> None:
    cell = LoadingCell(steps_in_flight=1)
    cell.submit(1, [7, 8, 9])
    plan = cell.planned()
    cell.store(PROMPT)
    cell.submit(2, PROMPT)
    order = cell.order()
    cell.finish(order)
    cell.answer(plan)
    plan = cell.planned()
    assert (plan.starts, plan.num_new_tokens) == ([3, 16], [1, 1])
