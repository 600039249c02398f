"""Outputs that leave their grammar or exhaust it, and who is named for it."""

import pytest
import torch
from llguidance import LLParserLimits

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.plan.plan_error import PlanError
from support.cells.grammar_bench import PROMPT, VOCAB, Bench
from support.cells.worker_driver import GREEDY


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.table.shutdown()


def test_a_token_that_is_not_in_the_grammar_names_its_slot_alone(bench):
    grammar_id = bench.compile(Params(choice=("ab", "cd")))
    bench.install(4, grammar_id)
    bench.install(6, grammar_id, bench.ids("x"))
    bench.install(8, grammar_id)
    bench.install(2, None)
    masks = bench.masks([2, 8, 6, 4])
    assert (masks.rows.tolist(), masks.late.tolist(), list(masks.given_up)) == ([1, 3], [2], [2])
    bench.free(6)
    assert bench.masks([8, 4]).rows.tolist() == [0, 1]


def test_an_unknown_grammar_and_a_beam_are_refused(bench):
    with pytest.raises(PlanError, match="not compiled here") as caught:
        bench.install(2, b"x" * 16)
    assert caught.value.culprit_slots == (2,)
    grammar_id = bench.compile(Params(choice=("a",)))
    request = NewSequence(
        slot=3,
        request_id=b"r" * 16,
        choice=0,
        prompt_token_ids=PROMPT,
        emitted_token_ids=(),
        sampling=GREEDY,
        block_ids=[0],
        num_candidates=1,
        grammar_id=grammar_id,
    )
    with pytest.raises(PlanError, match="beam"):
        bench.table.install(request)


def test_outputs_that_exhaust_the_lexer_together_do_not_fail(bench, monkeypatch):
    """Copies of a matcher share the states of its lexer, of which there is a most."""
    monkeypatch.setattr("pagewire_shared.sampling.grammar_source.LIMITS", _few_states())
    grammar_id = bench.compile(Params(regex="[ab]*a[ab]{40}c|x[yz]{0,200}"))
    bench.install(1, grammar_id)
    (x,), (y,) = bench.ids("x"), bench.ids("y")
    bench.write([1], [x])
    first = bench.compiler._compiled.find(grammar_id).prototype
    generator = torch.Generator().manual_seed(2)
    for _ in range(100):
        bench.free(0)
        bench.install(0, grammar_id)
        for _ in range(15):
            bench.step([0], generator)
    assert bench.compiler._compiled.find(grammar_id).prototype is not first
    assert bench.allowed(1) & {y}
    bench.write([1], [y])
    assert bench.allowed(1) & {y}
    bench.install(2, grammar_id)
    assert bench.allowed(2) & {x}


def test_one_output_too_large_for_the_lexer_alone_is_at_fault(bench, monkeypatch):
    monkeypatch.setattr("pagewire_shared.sampling.grammar_source.LIMITS", _few_states())
    params = Params(regex=".*a.{40}|x[yz]{0,200}")
    grammar_id = bench.compile(params)
    bench.install(0, grammar_id)
    bench.install(1, grammar_id)
    generator = torch.Generator().manual_seed(2)
    (x,), (y,) = bench.ids("x"), bench.ids("y")
    bench.write([1], [x])
    for _ in range(900):
        masks = bench.masks([0])
        if masks.given_up:
            break
        bench.step([0], generator)
    assert "too many states" in masks.given_up[0]
    bench.write([1], [y])
    assert bench.allowed(1) & {y}
    masks = bench.masks([1, 0])
    assert (masks.rows.tolist(), list(masks.given_up)) == ([0], [1])
    bench.free(0)
    assert bench.allowed(1) & {y}


def _few_states():
    return LLParserLimits(max_lexer_states=1000, verbose_errors=False)


def test_a_vocabulary_that_is_no_multiple_of_a_word(bench):
    padded = Bench(vocab=3101)
    padded.install(0, padded.compile(Params(regex=".*")))
    assert padded.masks([0]).bits.shape == (1, 97)
    assert max(padded.allowed(0)) < VOCAB
    padded.table.shutdown()
