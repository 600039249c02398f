"""Requests that want a vector: computed like a prompt, ended by their outcome."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import FRONTEND, Cell, finished, said
from unit.scheduler.hellos import MODEL, worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event, RejectedEvent, TokensEvent, VectorEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.planning import plan_builder as builder
from pagewire_scheduler.core.state.frontend import Held
from pagewire_shared.errors import WireError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.steps.plan import StepPlan

SIZE = 2
LAST, MEAN = PoolingParams(), PoolingParams(pooling="mean")


def pooling_cell(**changes: object) -> Cell:
    return Cell(model=replace(MODEL, embedding_size=SIZE), **changes)


def vector(number: int) -> bytes:
    return bytes([number] * 4 * SIZE)


def answer(cell: Cell, plan: StepPlan, *numbers: int, tokens: int = 0) -> list[Event]:
    """Answer a plan whose first sampled slots get tokens and whose others pool."""
    return cell.answer(
        plan,
        counts=[1] * tokens + [0] * len(numbers),
        token_ids=[9] * tokens,
        vectors=b"".join(map(vector, numbers)),
    )


def test_a_vector_ends_its_request() -> None:
    cell = pooling_cell()
    cell.submit(1, [1, 2, 3], pooling=LAST)
    plan = cell.planned()
    assert plan.new_sequences[0].pooling == LAST
    assert plan.samples == [1]
    assert cell.plan() is None, "nothing comes after the last chunk"
    told, ended = answer(cell, plan, 7)
    assert isinstance(told, VectorEvent)
    assert (told.handle, told.vector) == (1, vector(7))
    (end,) = finished([ended])
    assert (end.state, end.num_tokens) == (State.FINISHED_STOPPED, 0)
    assert not cell.core.requests


def test_it_shares_a_step_with_generation() -> None:
    cell = pooling_cell()
    cell.submit(1, [1, 2, 3])
    cell.submit(2, [4, 5], pooling=LAST)
    cell.submit(3, [6, 7], pooling=MEAN)
    plan = cell.planned()
    assert plan.samples == [1, 1, 1]
    events = answer(cell, plan, 5, 6, tokens=1)
    kinds = [type(event) for event in events[:3]]
    assert kinds == [TokensEvent, VectorEvent, VectorEvent]
    assert [e.vector for e in events if isinstance(e, VectorEvent)] == [vector(5), vector(6)]


def test_chunks_and_the_cache() -> None:
    cell = pooling_cell()
    prompt = list(range(1, 31))
    cell.submit(1, prompt, pooling=MEAN)
    first, second = cell.planned(), cell.planned()
    assert (first.samples, second.samples) == ([0], [1])
    answer(cell, first)
    answer(cell, second, 1)
    cell.submit(2, prompt, pooling=MEAN)
    assert cell.planned().starts == [0], "a mean needs every position"
    cell = pooling_cell()
    cell.submit(1, prompt[:20])
    cell.run()
    cell.submit(2, prompt[:20], pooling=LAST)
    plan = cell.planned()
    assert plan.starts == [16]
    (told,) = [e for e in answer(cell, plan, 3) if isinstance(e, VectorEvent)]
    assert told.num_cached_tokens == 16


def test_a_prompt_as_long_as_the_context_is_taken() -> None:
    cell = pooling_cell(max_num_batched_tokens=64)
    assert not cell.submit(1, [1] * 64, pooling=LAST)
    answer(cell, cell.planned(), 1)
    (event,) = cell.submit(2, [1] * 65, pooling=LAST)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == "input"


def test_what_no_worker_has_blocks_for_is_refused_in_its_own_words() -> None:
    cell = pooling_cell(num_blocks=2)
    (event,) = cell.submit(1, [1] * 40, pooling=LAST)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == "input"
    assert "max_tokens" not in event.error.message


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"emitted": ((), ())}, "kind"),
        ({"emitted": ((5,),)}, "kind"),
        ({"sampling": SamplingParams(prompt_logprobs=1)}, "sampling"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, object], field: str) -> None:
    (event,) = pooling_cell().submit(1, [1, 2], pooling=LAST, **fields)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == field


def test_a_model_without_vectors_refuses() -> None:
    (event,) = Cell().submit(1, [1, 2], pooling=LAST)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == "model"


@pytest.mark.parametrize(
    "broken",
    [
        {"counts": [1], "token_ids": [9], "vectors": vector(1)},
        {"counts": [0], "token_ids": [], "vectors": b""},
        {"counts": [0], "token_ids": [], "vectors": vector(1) * 2},
        {"counts": [0], "token_ids": [9], "vectors": vector(1)},
    ],
)
def test_an_answer_that_is_none_is_refused(broken: dict[str, object]) -> None:
    cell = pooling_cell()
    cell.submit(1, [1, 2], pooling=LAST)
    plan = cell.planned()
    with pytest.raises(WireError):
        cell.answer(plan, **broken)


def test_it_is_resent_and_runs_again_after_a_loss() -> None:
    cell = pooling_cell()
    cell.submit(1, [1, 2, 3], pooling=LAST)
    cell.planned()
    cell.core.detach_worker(cell.info.worker_id)
    cell.info = worker_info(2, model=replace(MODEL, embedding_size=SIZE))
    cell.core.attach_worker(cell.info)
    cell.core.detach_frontend(FRONTEND, 0.0)
    assert not answer(cell, cell.planned(), 4)
    held = [Held(next(iter(cell.core.requests)), 0, 8, (0,))]
    _, events = cell.core.attach_frontend(FRONTEND, held, is_same_generation=True)
    told, end = said(events)
    assert isinstance(told, VectorEvent)
    assert (told.handle, told.vector) == (8, vector(4))
    assert finished([end])[0].handle == 8
    check_integrity(cell.core)


def test_a_step_returns_no_more_vectors_than_a_message_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builder, "MAX_VECTOR_BYTES", 2 * 4 * SIZE)
    cell = pooling_cell(steps_in_flight=1)
    for number in range(1, 6):
        cell.submit(number, [number, 2], pooling=LAST)
    numbers = []
    while (plan := cell.plan()) is not None:
        numbers.append(len(plan.slots))
        answer(cell, plan, *plan.slots)
    assert numbers == [2, 2, 1, 0], "the last plan frees the slots"


def test_a_last_chunk_of_one_token_returns_the_vector() -> None:
    cell = pooling_cell()
    cell.submit(1, [1] * 25, pooling=MEAN)
    answer(cell, cell.planned())
    plan = cell.planned()
    assert plan.num_new_tokens == [1]
    assert any(isinstance(event, VectorEvent) for event in answer(cell, plan, 1))


def encoder_cell(**changes: object) -> Cell:
    model = replace(MODEL, embedding_size=SIZE, num_labels=1, is_encoder=True, max_model_len=32)
    return Cell(model=model, max_num_batched_tokens=40, steps_in_flight=1, **changes)


def test_an_encoder_computes_prompts_whole_and_names_no_blocks() -> None:
    cell = encoder_cell()
    for number in range(1, 4):
        cell.submit(number, [number] * 20, pooling=LAST)
    plans = []
    while (plan := cell.plan()) is not None and plan.slots:
        plans.append(plan)
        answer(cell, plan, *plan.slots)
    assert [plan.num_new_tokens for plan in plans] == [[20, 20], [20]]
    assert not any(plan.names for plan in plans)
    check_integrity(cell.core)


def test_outcomes_have_their_own_sizes() -> None:
    cell = encoder_cell()
    kinds = [PoolingParams(pooling=kind) for kind in ("tokens", "scores", "cls")]
    for number, params in enumerate(kinds, start=1):
        cell.submit(number, [number] * 3, pooling=params)
    plan = cell.planned()
    sizes = [3 * SIZE, 1, SIZE]
    parts = [bytes([number] * 4 * size) for number, size in enumerate(sizes)]
    events = cell.answer(plan, counts=[0] * 3, token_ids=[], vectors=b"".join(parts))
    assert [event.vector for event in events if isinstance(event, VectorEvent)] == parts


@pytest.mark.parametrize(
    ("cell", "fields", "field"),
    [
        (encoder_cell(), {}, "model"),
        (pooling_cell(), {"pooling": PoolingParams(pooling="scores")}, "model"),
        (pooling_cell(), {"pooling": PoolingParams(pooling="tokens")}, "pooling"),
    ],
)
def test_a_model_refuses_outcomes_that_it_does_not_have(
    cell: Cell, fields: dict[str, object], field: str
) -> None:
    (event,) = cell.submit(1, [1, 2], **fields)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == field
