"""Log-probabilities of prompts: asked of the worker, kept once, told before any token."""

from typing import Any

import pytest
from unit.scheduler.cell import FRONTEND, Cell
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.convert.frontend import prompt_batches
from pagewire_scheduler.core.data.events import Event, PromptLogprobsEvent, TokensEvent
from pagewire_scheduler.core.state.frontend import Held
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import unpack_f32, unpack_u32
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import PromptLogprobs, StepFailure

ASKED = SamplingParams(max_tokens=3, prompt_logprobs=2)
PROMPT = list(range(1, 31))


def told(*parts: tuple[int, int, int]) -> PromptLogprobs:
    """Return what a worker tells of (slot, first position, count) each; values name positions."""
    positions = [first + index for _, first, count in parts for index in range(count)]
    return PromptLogprobs(
        slots=[slot for slot, _, _ in parts],
        first_positions=[first for _, first, _ in parts],
        counts=[count for _, _, count in parts],
        logprobs=[-float(position) for position in positions],
        ranks=positions,
        num_top=[2] * len(positions),
        top_token_ids=[token for position in positions for token in (position, 0)],
        top_logprobs=[value for position in positions for value in (-0.5, -float(position))],
    )


def pieces(events: list[Event]) -> list[tuple[int, list[float]]]:
    return [
        (event.piece.first_position, list(event.piece.logprobs))
        for event in events
        if isinstance(event, PromptLogprobsEvent)
    ]


def values(begin: int, end: int) -> list[float]:
    return [-float(position) for position in range(begin, end)]


def test_it_is_told_chunk_by_chunk_before_the_first_token() -> None:
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED)
    first, second = cell.planned(), cell.planned()
    assert first.num_new_tokens == [24]
    assert pieces(cell.answer(first, prompt=told((0, 1, 24)))) == [(1, values(1, 25))]
    events = cell.answer(second, prompt=told((0, 25, 5)))
    assert [type(event) for event in events] == [PromptLogprobsEvent, TokensEvent]
    assert pieces(events) == [(25, values(25, 30))]
    assert not pieces(cell.run()), "nothing more is told while it generates"


def test_it_reads_no_cache_and_who_does_not_ask_does() -> None:
    cell = Cell()
    cell.submit(1, PROMPT[:20], sampling=SamplingParams(max_tokens=1))
    cell.run()
    cell.submit(2, PROMPT[:20], sampling=ASKED)
    cell.submit(3, PROMPT[:20])
    plan = cell.planned()
    assert plan.starts == [0, 16]
    assert [one.sampling.prompt_logprobs for one in plan.new_sequences] == [2, None]


@pytest.mark.parametrize(
    "broken",
    [
        None,
        told(),
        told((0, 0, 24)),
        told((0, 1, 23)),
        told((1, 1, 24)),
        PromptLogprobs(
            slots=[0], first_positions=[1], counts=[24], logprobs=[-1.0] * 23, ranks=[1] * 23
        ),
    ],
)
def test_an_answer_that_tells_something_else_is_refused(broken: Any) -> None:
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED)
    with pytest.raises(WireError):
        cell.answer(cell.planned(), prompt=broken)


def test_what_nobody_asked_for_is_refused() -> None:
    cell = Cell()
    cell.submit(1, PROMPT)
    with pytest.raises(WireError):
        cell.answer(cell.planned(), prompt=told((0, 1, 24)))


def tell_all(cell: Cell, plan: StepPlan) -> list[Event]:
    """Answer a plan with all that its chunks have to tell of prompts."""
    chunks = zip(plan.slots, plan.starts, plan.num_new_tokens, strict=True)
    parts = [(s, a + 1, min(a + n + 1, len(PROMPT)) - a - 1) for s, a, n in chunks if n]
    return cell.answer(plan, prompt=told(*[part for part in parts if part[2] > 0]))


def test_after_a_loss_only_what_is_missing_is_told_again() -> None:
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED)
    tell_all(cell, cell.planned())
    cell.core.detach_worker(cell.info.worker_id)
    cell.info = worker_info(2, max_num_batched_tokens=10)
    cell.core.attach_worker(cell.info)
    events: list[Event] = []
    for _ in range(3):
        plan = cell.planned()
        assert plan.starts[0] % 10 == 0, "it starts from the beginning"
        events += tell_all(cell, plan)
    assert pieces(events) == [(25, values(25, 30))]


def test_once_all_is_told_a_later_life_may_use_the_cache() -> None:
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED)
    tell_all(cell, cell.planned())
    tell_all(cell, cell.planned())
    plan = cell.planned()
    result = StepFailure("broken")
    cell.answer(plan, slots=[], counts=[], token_ids=[], failure=result)
    plan = cell.planned()
    (new,) = plan.new_sequences
    assert new.sampling.prompt_logprobs is None
    assert plan.starts[0] > 0


def test_choices_tell_it_once() -> None:
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED, emitted=((), (), ()))
    events = tell_all(cell, cell.planned()) + tell_all(cell, cell.planned())
    events += cell.run()
    assert [first for first, _ in pieces(events)] == [1, 25]


def test_a_frontend_that_returns_is_told_all_of_it() -> None:
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED)
    tell_all(cell, cell.planned())
    cell.core.detach_frontend(FRONTEND, 0.0)
    tell_all(cell, cell.planned())
    held = [Held(next(iter(cell.core.requests)), 0, 8, (0,))]
    _, events = cell.core.attach_frontend(FRONTEND, held, is_same_generation=True)
    assert pieces(events) == [(1, values(1, 25)), (25, values(25, 30))]
    assert isinstance(events[-1], TokensEvent)


def test_a_prompt_of_one_token_has_nothing_to_tell() -> None:
    cell = Cell()
    cell.submit(1, [1], sampling=ASKED)
    assert isinstance(cell.answer(cell.planned())[0], TokensEvent)


def test_messages_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagewire_scheduler.convert.frontend.MAX_PROMPT_VALUES", 21)
    cell = Cell()
    cell.submit(1, PROMPT, sampling=ASKED)
    events = tell_all(cell, cell.planned())
    batches = list(prompt_batches([e for e in events if isinstance(e, PromptLogprobsEvent)]))
    assert [unpack_u32(batch.counts) for batch in batches] == [[7], [7], [7], [3]]
    assert [unpack_u32(batch.first_positions)[0] for batch in batches] == [1, 8, 15, 22]
    assert [v for batch in batches for v in unpack_f32(batch.logprobs)] == values(1, 25)
    assert unpack_u32(batches[1].top_token_ids)[:4] == [8, 0, 9, 0]
