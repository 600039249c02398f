"""Beam search: the arithmetic against a search that keeps everything, and the moves of a group."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from unit.scheduler.cell import FRONTEND, Cell, finished
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import audit
from pagewire_scheduler.core.data.events import Event, RejectedEvent, TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.beam_search import Beam, BeamSearch
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan

VOCAB = 12
EOS = 0


def logprobs(tokens: tuple[int, ...], seed: int = 0) -> list[float]:
    dice = random.Random(f"{seed} {tokens}")
    values = [dice.gauss(0.0, 2.0) for _ in range(VOCAB)]
    total = math.log(sum(map(math.exp, values)))
    return [value - total for value in values]


def likeliest(tokens: tuple[int, ...], count: int, seed: int = 0) -> list[tuple[int, float]]:
    ranked = sorted(enumerate(logprobs(tokens, seed)), key=lambda pair: -pair[1])
    return ranked[:count]


def search_all(params: BeamParams, width: int, max_tokens: int, seed: int) -> list[tuple]:
    """Keep the whole vocabulary of every beam and sort it all, step by step."""
    running: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, max_tokens + 1):
        grown = [
            (score + value, (*tokens, token))
            for score, tokens in running
            for token, value in enumerate(logprobs(tokens, seed))
        ]
        grown.sort(key=lambda pair: -pair[0])
        for score, tokens in grown[:width]:
            if tokens[-1] == EOS or length == max_tokens:
                finished.append((score / length**params.length_penalty, tokens))
        finished = sorted(finished, key=lambda pair: -pair[0])[:width]
        running = [pair for pair in grown if pair[1][-1] != EOS][:width]
        if len(finished) == width:
            best_length = length
            if params.early_stopping is None and params.length_penalty > 0:
                best_length = max_tokens
            best = running[0][0] / best_length**params.length_penalty
            if params.early_stopping is True or best <= finished[-1][0]:
                break
    return [tokens for _, tokens in finished]


CASES = list(itertools.product((True, False, None), (0.0, 1.0, 2.0, -1.0), (1, 2, 4), range(4)))


@pytest.mark.parametrize(("early_stopping", "length_penalty", "width", "seed"), CASES)
def test_the_likeliest_tokens_of_each_beam_are_enough(
    early_stopping: bool | None, length_penalty: float, width: int, seed: int
) -> None:
    params = BeamParams(length_penalty=length_penalty, early_stopping=early_stopping)
    search = BeamSearch(width=width, max_tokens=7, params=params, end_ids=frozenset({EOS}))
    beams = [Beam((), 0.0, likeliest((), search.num_candidates, seed))]
    while branches := search.step(beams):
        grown = [((*beams[b.parent].tokens, b.token), b.score) for b in branches]
        beams = [
            Beam(tokens, score, likeliest(tokens, search.num_candidates, seed))
            for tokens, score in grown
        ]
    assert [one.tokens for one in search.finished] == search_all(params, width, 7, seed)


def test_no_end_before_min_tokens() -> None:
    search = BeamSearch(
        width=2, max_tokens=5, params=BeamParams(), end_ids=frozenset({EOS}), min_tokens=3
    )
    beams = [Beam((), 0.0, [(EOS, -0.1), (1, -1.0), (2, -2.0)])]
    while branches := search.step(beams):
        beams = [
            Beam((*beams[b.parent].tokens, b.token), b.score, [(EOS, -0.1), (1, -1.0), (2, -2.0)])
            for b in branches
        ]
    assert min(len(one.tokens) for one in search.finished) >= 3


class BeamCell(Cell):
    """A cell whose worker keeps the tokens of its slots, as the plans say."""

    def __init__(self, **changes: object) -> None:
        super().__init__(**changes)  # type: ignore[arg-type]
        self.texts: dict[int, tuple[int, ...]] = {}

    def answer(self, plan: StepPlan, token: int = 9, **fields: object) -> list[Event]:
        for new in plan.new_sequences:
            self.texts[new.slot] = new.prompt_token_ids + new.emitted_token_ids
        forks = zip(plan.fork_slots, plan.fork_sources, strict=True)
        self.texts |= {slot: self.texts[source] for slot, source in forks}
        for slot, appended in zip(plan.appended_slots, plan.appended_token_ids, strict=True):
            self.texts[slot] += (appended,)
        sampled = [s for s, is_sampled in zip(plan.slots, plan.samples, strict=True) if is_sampled]
        tops = [likeliest(self.texts[slot][3:], 5) for slot in sampled]
        return super().answer(
            plan,
            token,
            num_top=[5] * len(sampled),
            top_token_ids=[one for top in tops for one, _ in top],
            top_logprobs=[value for top in tops for _, value in top],
            **fields,
        )


def beams_of(cell: BeamCell, width: int = 4, **fields: object) -> None:
    fields = {"eos_token_ids": (EOS,), "sampling": SamplingParams(max_tokens=7), **fields}
    cell.submit(
        1,
        [1, 2, 3],
        emitted=((),) * width,
        is_finished=(False,) * width,
        beam_search=BeamParams(),
        **fields,
    )


def test_a_group_finds_what_the_search_finds() -> None:
    cell = BeamCell()
    beams_of(cell)
    events = cell.run()
    tokens = {e.choice: e.token_ids for e in events if isinstance(e, TokensEvent)}
    wanted = search_all(BeamParams(), 4, 7, 0)
    assert [tokens[choice] for choice in range(4)] == wanted
    ends = finished(events)
    assert [e.num_tokens for e in ends] == [len(one) for one in wanted]
    report = audit(cell.core)
    assert report.pools[0].num_held == 0
    assert not report.num_requests


def test_nothing_is_emitted_before_the_end_and_one_step_is_out_at_a_time() -> None:
    cell = BeamCell()
    beams_of(cell)
    first = cell.planned()
    assert cell.plan() is None
    assert not cell.answer(first)
    second = cell.planned()
    assert cell.plan() is None
    assert len(second.fork_slots) == 3
    assert len(second.appended_slots) == 4
    assert second.num_new_tokens == [1] * 4


def test_a_group_gives_way_as_a_whole_and_starts_again() -> None:
    cell = BeamCell(num_blocks=9, steps_in_flight=1, max_num_seqs=6)
    beams_of(cell, width=2)
    cell.answer(cell.planned())
    cell.answer(cell.planned())
    # Older by its priority, and in need of more than what is free.
    cell.submit(2, [9] * 24, priority=-5, sampling=SamplingParams(max_tokens=2))
    events = cell.run()
    ends = finished(events)
    assert next(e.handle for e in ends) == 2, "the older one was served first"
    tokens = [e.token_ids for e in events if isinstance(e, TokensEvent) and e.handle == 1]
    assert tokens == search_all(BeamParams(), 2, 7, 0)
    assert cell.core.counts.num_preemptions


def test_a_search_that_is_aborted_leaves_nothing() -> None:
    cell = BeamCell()
    beams_of(cell)
    cell.answer(cell.planned())
    cell.answer(cell.planned())
    cell.core.abort(FRONTEND, 1, None)
    cell.run()
    report = audit(cell.core)
    assert report.pools[0].num_held == 0
    assert not report.num_requests


def test_an_aborted_search_ends_with_no_tokens() -> None:
    cell = BeamCell()
    beams_of(cell, deadline=1.0)
    cell.answer(cell.planned())
    cell.answer(cell.planned())
    ends = finished(cell.core.tick(2.0))
    assert [(e.state, e.num_tokens) for e in ends] == [(State.FINISHED_ABORTED, 0)] * 4


def test_more_beams_than_slots_are_refused() -> None:
    cell = BeamCell(max_num_seqs=3)
    (event,) = cell.submit(
        1,
        [1, 2, 3],
        emitted=((),) * 4,
        is_finished=(False,) * 4,
        beam_search=BeamParams(),
    )
    assert event.error.field == "n"  # type: ignore[union-attr]


@pytest.mark.parametrize(("num_ends", "is_refused"), [(124, False), (125, True)])
def test_more_candidates_than_a_worker_gives_are_refused(num_ends: int, is_refused: bool) -> None:
    model = replace(worker_info(1).model, vocab_size=1000)
    cell = BeamCell(model=model)
    ends = tuple(range(100, 100 + num_ends))
    events = cell.submit(
        1,
        [1, 2, 3],
        emitted=((),) * 4,
        is_finished=(False,) * 4,
        beam_search=BeamParams(),
        eos_token_ids=ends[:1],
        sampling=SamplingParams(max_tokens=7, stop_token_ids=ends),
    )
    refusals = [event.error.field for event in events if isinstance(event, RejectedEvent)]
    assert refusals == (["stop_token_ids"] if is_refused else [])


def test_ignored_ends_are_no_candidates() -> None:
    cell = BeamCell(model=replace(worker_info(1).model, vocab_size=1000))
    beams_of(cell, sampling=SamplingParams(max_tokens=7, ignore_eos=True), eos_token_ids=range(200))
    assert cell.planned().new_sequences[0].num_candidates == 4
