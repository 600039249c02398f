"""How busy a cell is: who runs, who waits for what, how full its caches are, what was counted."""

from unit.scheduler.cell import FRONTEND, Cell, submission
from unit.scheduler.handoff_cell import DECODE, PREFILL, HandoffCell
from unit.scheduler.hellos import MODEL, worker_info
from unit.scheduler.loading_cell import PROMPT, LoadingCell

from pagewire_scheduler.convert.cell import metrics_message
from pagewire_scheduler.core.cell_load import CellLoad, SequenceCounts, WaitReason, cell_load
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.steps.result import StepFailure

OTHER = b"g" * 16
LONG = SamplingParams(max_tokens=20, ignore_eos=True)


def load_of(core: SchedulerCore) -> CellLoad:
    return cell_load(core.frontends.values(), core.workers.values())


def counts(core: SchedulerCore, frontend: bytes = FRONTEND) -> tuple[int, dict[str, int]]:
    """Return who runs, and who waits by reason, without zeros."""
    found = load_of(core).sequences[frontend].get("tiny", SequenceCounts())
    waiting = {reason.value: count for reason, count in found.num_waiting.items() if count}
    return found.num_running, waiting


def test_who_runs_and_who_has_no_room_yet() -> None:
    cell = Cell(max_num_seqs=2)
    for number in (1, 2, 3):
        cell.submit(number, [number, 2, 3])
    assert counts(cell.core) == (0, {"capacity": 3})
    cell.planned()
    assert counts(cell.core) == (2, {"capacity": 1})
    cell.core.abort(FRONTEND, 1, None)
    assert counts(cell.core) == (1, {"capacity": 1})


def test_choices_count_like_the_one_that_computes_their_prompt() -> None:
    cell = Cell(max_num_batched_tokens=4, max_num_seqs=4)
    cell.submit(1, list(range(10)), emitted=((), (), ()))
    assert counts(cell.core) == (0, {"capacity": 3})
    cell.planned()
    assert counts(cell.core) == (3, {})


def test_steps_are_counted_by_their_size() -> None:
    cell = Cell(max_num_batched_tokens=8)
    cell.submit(1, list(range(20)))
    for _ in range(3):
        plan = cell.planned()
        cell.answer(plan)
    workers = load_of(cell.core).workers["tiny"]
    # Of 8, 8 and 4 tokens.
    assert workers.num_step_tokens == 20
    assert workers.steps_by_tokens[:5] == (0, 0, 1, 2, 0)
    (model,) = metrics_message({}, load_of(cell.core).workers).models
    assert (tuple(model.steps_by_tokens), model.num_step_tokens) == (workers.steps_by_tokens, 20)


def test_frontends_are_apart_and_add_up() -> None:
    cell = Cell(max_num_seqs=2)
    cell.core.attach_frontend(OTHER, [], is_same_generation=False)
    cell.submit(1, [1, 2])
    cell.core.submit(OTHER, submission(2, [3, 4]), 0.0)
    cell.core.submit(OTHER, submission(3, [5, 6]), 0.0)
    cell.planned()
    assert counts(cell.core) == (1, {})
    assert counts(cell.core, OTHER) == (1, {"capacity": 1})
    total = load_of(cell.core).of_all_frontends()["tiny"]
    assert (total.num_running, total.num_waiting[WaitReason.CAPACITY]) == (2, 1)


def test_waiting_for_a_grammar_and_for_blocks_is_no_lack_of_room() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    outputs = StructuredOutputsParams(regex="a+")
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=4, structured_outputs=outputs))
    cell.submit(2, PROMPT)
    cell.order()
    assert counts(cell.core) == (0, {"grammar": 1, "kv": 1})


def test_without_a_worker_all_wait_for_capacity() -> None:
    cell = Cell()
    cell.core.detach_worker(cell.info.worker_id)
    cell.submit(1, [1, 2])
    assert counts(cell.core) == (0, {"capacity": 1})
    assert load_of(cell.core).workers == {}


def test_who_waits_for_a_trial() -> None:
    cell = Cell(steps_in_flight=1)
    cell.submit(1, [1, 2])
    cell.submit(2, [3, 4])
    cell.answer(cell.planned(), failure=StepFailure("odd"), slots=[], counts=[], token_ids=[])
    cell.planned()
    assert counts(cell.core) == (1, {"trial": 1})


def test_blocks_in_use_are_those_that_somebody_holds() -> None:
    cell = Cell()
    cell.submit(1, list(range(9)))
    plan = cell.planned()
    workers = load_of(cell.core).workers["tiny"]
    assert (workers.num_blocks, workers.num_used_blocks, workers.block_size) == (24, 3, 4)
    assert workers.usage == 3 / 24
    cell.core.abort(FRONTEND, 1, None)
    cell.answer(plan)
    assert load_of(cell.core).workers["tiny"].num_used_blocks == 0, "what is cached is free"


def test_workers_of_one_model_are_together_by_their_use() -> None:
    core = HandoffCell().core
    workers = load_of(core).workers["tiny"]
    assert workers.num_by_roles == {PREFILL: 1, DECODE: 1}
    assert (workers.num_workers, workers.num_blocks) == (2, 48)


def test_a_frontend_is_told_of_its_own_sequences_and_all_workers() -> None:
    cell = Cell()
    cell.core.attach_frontend(OTHER, [], is_same_generation=False)
    cell.core.submit(OTHER, submission(2, [3, 4]), 0.0)
    cell.core.submit(OTHER, submission(3, [3, 4], model="none"), 0.0)
    load = load_of(cell.core)
    (tiny,) = metrics_message(load.sequences[FRONTEND], load.workers).models
    assert (tiny.model, tiny.num_waiting_for_capacity, tiny.num_workers) == ("tiny", 0, 1)
    assert (tiny.num_blocks, tiny.block_size) == (24, MODEL.block_size)
    tiny, none = metrics_message(load.sequences[OTHER], load.workers).models
    assert (tiny.num_waiting_for_capacity, none.num_waiting_for_capacity) == (1, 1)
    assert (none.model, none.num_workers, none.num_blocks) == ("none", 0, 0)


def test_prompts_are_counted_where_they_were_found() -> None:
    cell = Cell(steps_in_flight=1)
    for number in (1, 2):
        cell.submit(number, list(range(10)))
        cell.run()
    totals = cell.core.counts.models["tiny"]
    assert totals.num_queried_tokens == 20
    assert totals.prefix_tokens == {"worker": 8}
    assert totals.num_prompt_tokens == 12


def test_what_a_store_had_is_its_tiers() -> None:
    cell = LoadingCell()
    cell.store(PROMPT)
    cell.submit(1, PROMPT)
    cell.finish(cell.order())
    cell.run()
    totals = cell.core.counts.models["tiny"]
    assert totals.prefix_tokens == {"memory": 16}
    assert totals.num_prompt_tokens == 1


def test_evictions_and_lost_workers_are_counted() -> None:
    cell = Cell(num_blocks=8, steps_in_flight=1)
    for number in (1, 2):
        cell.submit(number, [number] * 12, sampling=LONG)
    for _ in range(10):
        cell.answer(cell.planned())
    totals = cell.core.counts.models["tiny"]
    assert totals.num_preemptions == cell.core.counts.num_preemptions == 1
    cell.core.detach_worker(cell.info.worker_id)
    assert (totals.num_lost_workers, totals.num_requeued) == (1, 2)
    cell.core.attach_worker(worker_info(2, num_blocks=8))
    cell.core.drain_worker(worker_info(2).worker_id)
    cell.core.detach_worker(worker_info(2).worker_id)
    assert totals.num_lost_workers == 1, "who drained was expected to go"
