"""Requests with grammars wait until their worker has compiled them, and delay nobody else."""

from unit.scheduler.cell import FRONTEND, Cell, finished
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.stream_limits import StreamLimits
from pagewire_scheduler.core.queueing.enqueue import pop_requests
from pagewire_scheduler.core.state.grammars import MAX_READY, MAX_RELEASED, WorkerGrammars
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


def guided(regex: str = "[ab]+", **fields: object) -> SamplingParams:
    outputs = StructuredOutputsParams(regex=regex)
    return SamplingParams(max_tokens=4, structured_outputs=outputs, **fields)  # type: ignore[arg-type]


def asked(cell: Cell) -> list[bytes]:
    taken = cell.core.workers[cell.info.worker_id].grammars.pop_requests()
    return [grammar_id for grammar_id, _ in taken]


def note(cell: Cell, grammar_id: bytes, error: InvalidRequestError | None = None) -> list[object]:
    events = cell.core.note_grammar(cell.info.worker_id, grammar_id, error)
    check_integrity(cell.core)
    return list(events)


def test_it_waits_beside_the_queue_and_others_do_not() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], sampling=guided())
    cell.submit(2, [4, 5, 6])
    (grammar_id,) = asked(cell)
    plan = cell.planned()
    assert [one.request_id[0] for one in plan.new_sequences] == [2]
    assert cell.core.requests[next(iter(cell.core.requests))].sequences[0].state is (
        State.WAITING_FOR_GRAMMAR
    )
    note(cell, grammar_id)
    plan = cell.planned()
    (new,) = plan.new_sequences
    assert (new.request_id[0], new.grammar_id) == (1, grammar_id)


def test_one_grammar_is_asked_for_once() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], sampling=guided())
    cell.submit(2, [1, 2, 4], sampling=guided())
    cell.submit(3, [1, 2, 5], sampling=guided("c"))
    first, second = asked(cell)
    note(cell, first)
    note(cell, second)
    cell.submit(4, [1, 2, 6], sampling=guided())
    assert not asked(cell)
    ids = [one.grammar_id for one in cell.planned().new_sequences]
    assert ids == [first, first, second, first]


def test_all_choices_run_under_it() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], emitted=((), (), ()), sampling=guided())
    note(cell, *asked(cell))
    plan = cell.planned()
    assert len(plan.new_sequences) == 1
    assert len(plan.fork_slots) == 2
    assert len(finished(cell.answer(plan) + cell.run())) == 3


def test_what_does_not_compile_fails_all_who_wait_for_it_with_the_reason() -> None:
    cell = Cell()
    cell.submit(1, [1, 2], emitted=((), ()), sampling=guided("x"))
    cell.submit(2, [1, 2], sampling=guided("y"))
    bad, good = asked(cell)
    ended = finished(note(cell, bad, InvalidRequestError("no such regex")))  # type: ignore[arg-type]
    assert [(one.handle, one.state) for one in ended] == [(1, State.FINISHED_FAILED)] * 2
    assert ended[0].error is not None
    assert ended[0].error.message == "no such regex"
    note(cell, good)
    assert [one.request_id[0] for one in cell.planned().new_sequences] == [2]
    # Another request may ask for the same again.
    cell.submit(3, [1, 2], sampling=guided("x"))
    assert asked(cell) not in ([], [bad])


def test_a_lost_worker_is_asked_no_more_and_the_next_one_is() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], sampling=guided())
    note(cell, *asked(cell))
    cell.answer(cell.planned(), token=5)
    cell.core.detach_worker(cell.info.worker_id)
    cell.info = worker_info(2)
    cell.core.attach_worker(cell.info)
    check_integrity(cell.core)
    assert cell.plan() is None
    (grammar_id,) = asked(cell)
    note(cell, grammar_id)
    (new,) = cell.planned().new_sequences
    assert (new.emitted_token_ids, new.grammar_id) == ((5,), grammar_id)


def test_a_drain_moves_who_waits_for_a_grammar() -> None:
    cell = Cell()
    other = worker_info(2)
    cell.submit(1, [1, 2, 3], sampling=guided())
    cell.core.attach_worker(other)
    cell.core.drain_worker(cell.info.worker_id)
    check_integrity(cell.core)
    assert cell.core.is_drained(cell.info.worker_id)
    assert len(cell.core.workers[other.worker_id].grammars.pop_requests()) == 1


def test_an_abort_and_a_deadline_end_who_waits_for_a_grammar() -> None:
    cell = Cell()
    cell.submit(1, [1, 2], emitted=((), ()), sampling=guided())
    cell.submit(2, [1, 2], sampling=guided(), deadline=1.0)
    (grammar_id,) = asked(cell)
    cell.core.abort(FRONTEND, 1, 0)
    check_integrity(cell.core)
    (ended,) = finished(cell.core.tick(2.0))
    assert ended.handle == 2
    note(cell, grammar_id)
    (new,) = cell.planned().new_sequences
    assert (new.request_id[0], new.choice) == (1, 1), "the next choice stands in its place"


def test_a_preempted_sequence_comes_back_under_its_grammar() -> None:
    cell = Cell(num_blocks=6, is_caching=False)
    sampling = SamplingParams(
        max_tokens=12, structured_outputs=StructuredOutputsParams(regex="[ab]+")
    )
    cell.submit(1, [1] * 6, sampling=SamplingParams(max_tokens=12))
    cell.submit(2, [2] * 6, sampling=sampling)
    note(cell, *asked(cell))
    plans, ids = [], []
    for _ in range(200):
        while (plan := cell.plan()) is not None:
            plans.append(plan)
            ids += [new.grammar_id for new in plan.new_sequences if new.request_id[0] == 2]
        if not plans:
            break
        cell.answer(plans.pop(0))
    assert cell.core.counts.num_preemptions
    assert len(ids) > 1
    assert len(set(ids)) == 1


def test_answers_about_nothing_are_ignored() -> None:
    cell = Cell()
    assert not note(cell, b"?" * 16)
    assert not note(cell, b"?" * 16, InvalidRequestError("no"))


def test_the_oldest_unused_grammars_are_released_and_ids_never_come_again() -> None:
    grammars = WorkerGrammars(StreamLimits())
    params = StructuredOutputsParams(regex="a")
    keys = [number.to_bytes(16, "big") for number in range(MAX_READY + 3)]
    ids = []
    for key in keys:
        grammars.request_compile(key, params)
        ((grammar_id, _),) = grammars.pop_requests()
        ids.append(grammar_id)
        assert grammars.answer(grammar_id, is_compiled=True) == key
    assert grammars.is_ready(keys[1]), "used again, so it is young"
    grammars.release_unused([keys[0]])
    assert grammars.take_released() == [ids[2], ids[3], ids[4]]
    assert not grammars.take_released()
    assert grammars.is_ready(keys[0])
    grammars.request_compile(keys[2], params)
    ((again, _),) = grammars.pop_requests()
    assert again not in ids


def test_plans_tell_what_is_released() -> None:
    cell = Cell()
    for number in range(1, MAX_READY + 3):
        cell.submit(number, [1, 2], sampling=guided(f"a{number}"))
        note(cell, *asked(cell))
        events = cell.run()
        assert any(isinstance(event, TokensEvent) for event in events)
    released = []
    cell.submit(999, [1, 2])
    while (plan := cell.plan()) is not None:
        released += plan.released_grammars
        cell.answer(plan)
    # Those let go at the last two compilations; earlier plans told the first.
    assert cell.core.workers[cell.info.worker_id].grammars.num_ready == MAX_READY


def test_few_grammars_are_under_way_at_a_time() -> None:
    cell = Cell()
    for number in range(1, 51):
        cell.submit(number, [1, 2, 3], sampling=guided(f"x{number}"))
    under_way = asked(cell)
    assert len(under_way) == StreamLimits().max_grammars
    assert not asked(cell)
    note(cell, b"an id of nobody's")
    assert not asked(cell)
    num_asked = len(under_way)
    while under_way:
        note(cell, under_way.pop(0))
        taken = asked(cell)
        assert len(taken) == (num_asked < 50)
        num_asked += len(taken)
        under_way += taken
    assert num_asked == 50
    assert len(finished(cell.run())) == 50


def test_the_sources_under_way_are_bounded_in_bytes() -> None:
    grammars = WorkerGrammars(StreamLimits(max_grammar_bytes=10))

    texts = ["a" * 6, "b" * 6, "\u00e9" * 20, "c"]
    for text in texts:
        grammars.request_compile(text.encode()[:16].ljust(16), StructuredOutputsParams(regex=text))
    seen = []
    while taken := grammars.pop_requests():
        seen.append([params.text for _, params in taken])
        for grammar_id, _ in taken:
            grammars.answer(grammar_id, is_compiled=True)
    assert seen == [texts[:1], texts[1:2], texts[2:3], texts[3:]], "one alone may be larger"


def test_what_nobody_needs_any_more_is_not_asked_for() -> None:
    cell = Cell()
    for number in range(1, 31):
        cell.submit(number, [1, 2, 3], sampling=guided(f"x{number}"))
    worker = cell.core.workers[cell.info.worker_id]
    first = pop_requests(worker)
    for number in range(1, 30):
        cell.core.abort(FRONTEND, number, None)
    for grammar_id, _ in first:
        note(cell, grammar_id)
    ((_, last),) = pop_requests(worker)
    assert last.text == "x30"


def test_releases_beyond_those_of_one_plan_are_told_by_the_next() -> None:
    grammars = WorkerGrammars(StreamLimits())
    keys = [number.to_bytes(16, "little") for number in range(MAX_READY + MAX_RELEASED + 5)]
    for key in keys:
        grammars.request_compile(key, StructuredOutputsParams(regex="a"))
        ((grammar_id, _),) = grammars.pop_requests()
        grammars.answer(grammar_id, is_compiled=True)
    grammars.release_unused([])
    assert [len(grammars.take_released()) for _ in range(3)] == [MAX_RELEASED, 5, 0]
