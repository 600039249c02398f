"""A mask that takes long costs its own sequence a step, and nobody else."""

import threading

import numpy as np
import pytest
from unit.worker.grammars.test_grammar_steps import RANDOM, Rig

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.grammars import mask_jobs
from pagewire_worker.grammars.mask_credit import Credit
from pagewire_worker.grammars.mask_jobs import Bill
from pagewire_worker.grammars.matcher import GrammarMatcher
from support.cells.grammar_bench import Bench
from support.cells.worker_driver import PROMPT, request
from support.oracles.grammars import LANGUAGES

AMBIGUOUS = Params(grammar='start: a\na: a a a | a a | "a" | "b"')
NUM = len(PROMPT)


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.grammars.table.shutdown()


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.table.shutdown()


class Gate:
    """Holds up what is computed for one grammar, which counts as slow."""

    def __init__(self, monkeypatch, grammar):
        grammar.mask_seconds = 1.0
        self.is_open, catch_up = threading.Event(), GrammarMatcher.catch_up

        def late(follower, *seconds):
            if follower._grammar is grammar:
                assert self.is_open.wait(30)
            return catch_up(follower, *seconds)

        monkeypatch.setattr(GrammarMatcher, "catch_up", late)


def new(slot, grammar_id):
    blocks = [slot * 4 + index for index in range(4)]
    return request(slot, blocks=blocks, grammar_id=grammar_id, sampling=RANDOM)


def test_a_late_row_is_left_out_and_sampled_later_to_the_same_token(rig, monkeypatch):
    slow, quick = rig.compile(LANGUAGES[0].params), rig.compile(LANGUAGES[1].params)
    rows = [(0, 0, NUM, 1, 0), (1, 0, NUM, 1, 0), (2, 0, NUM, 1, 0)]
    new_sequences = [new(0, slow), new(1, quick), new(2, None)]
    expected = rig.driver.run_well(rows, new_sequences=new_sequences).token_ids.tolist()
    rig.driver.freed = [0, 1, 2]

    gate = Gate(monkeypatch, rig.grammars.compiler._compiled.find(slow))
    result = rig.driver.run_well(rows, new_sequences=new_sequences)
    assert (result.slots.tolist(), result.counts.tolist()) == ([0, 1, 2], [0, 1, 1])
    assert result.token_ids.tolist() == expected[1:]
    # Planned before that was known: there is no token to go on from, nor a fault.
    further = [(slot, NUM, 1, 1, 0) for slot in (0, 1)]
    result = rig.driver.run_well(further)
    assert (result.slots.tolist(), result.counts.tolist()) == ([0, 1], [0, 1])
    result = rig.driver.run_well([(0, NUM, 1, 1, 0)])
    assert (result.slots.tolist(), result.counts.tolist()) == ([0], [0])
    # Still late, with others and without.
    result = rig.driver.run_well([(0, NUM - 1, 1, 1, 0), (2, NUM, 1, 1, 0)])
    assert result.counts.tolist() == [0, 1]
    assert rig.driver.run_well([(0, NUM - 1, 1, 1, 0)]).counts.tolist() == [0]
    gate.is_open.set()
    while not (result := rig.driver.run_well([(0, NUM - 1, 1, 1, 0)])).counts[0]:
        pass
    assert result.token_ids.tolist() == expected[:1]
    assert not result.given_up
    # A token that no step has sampled is a fault again.
    assert rig.driver.run([(1, NUM + 2, 1, 1, 0)]).failure is not None


def test_a_slot_that_is_given_to_another_wants_the_late_mask_no_more(rig, monkeypatch):
    slow, quick = rig.compile(LANGUAGES[0].params), rig.compile(LANGUAGES[1].params)
    gate = Gate(monkeypatch, rig.grammars.compiler._compiled.find(slow))
    rows = [(0, 0, NUM, 1, 0), (1, 0, NUM, 1, 0)]
    result = rig.driver.run_well(rows, new_sequences=[new(0, slow), new(1, None)])
    assert result.counts.tolist() == [0, 1]
    rig.driver.freed = [0]
    result = rig.driver.run_well([(0, 0, NUM, 1, 0)], new_sequences=[new(0, quick)])
    assert result.counts.tolist() == [1]
    assert rig.driver.run_well([(0, NUM, 1, 1, 0)]).counts.tolist() == [1]
    gate.is_open.set()


def test_rows_of_other_grammars_do_not_wait_for_one_that_is_slow(bench, monkeypatch):
    """However many rows the slow one has."""
    slow, quick = bench.compile(LANGUAGES[0].params), bench.compile(LANGUAGES[1].params)
    gate = Gate(monkeypatch, bench.compiler._compiled.find(slow))
    for slot in range(20):
        bench.install(slot, slow)
    for _ in range(3):
        bench.install(20, quick)
        masks = bench.masks(list(range(21)))
        assert (masks.rows.tolist(), masks.late.tolist()) == ([20], list(range(20)))
        bench.free(20)
    gate.is_open.set()


def test_a_grammar_whose_masks_take_long_is_found_out_and_its_request_ends(bench, monkeypatch):
    """All choices of a request have one credit; nobody else loses a row."""
    monkeypatch.setattr(mask_jobs, "CREDIT_SECONDS", 0.02)
    monkeypatch.setattr(mask_jobs, "MASK_SECONDS", 0.0)
    slow, quick = bench.compile(AMBIGUOUS), bench.compile(LANGUAGES[1].params)
    (a,) = bench.ids("a")
    bench.install(0, slow, [a] * 90)
    grammar = bench.compiler._compiled.find(slow)
    grammar.mask_seconds = 1.0  # what its masks cost before
    while not (masks := bench.masks([0])).given_up:
        if len(masks.rows):
            bench.write([0], [a])
    assert "too costly to follow" in masks.given_up[0]
    assert grammar.is_slow
    # Another choice of the same request.
    bench.table.fork(np.array([1]), np.array([0]))
    bench.slots.restore(np.array([1]), bench.slots.save(np.array([0])))
    while not (masks := bench.masks([1])).given_up:
        assert not len(masks.rows)
    # Another request with the same grammar has a credit of its own.
    bench.install(2, slow)
    while not len(bench.masks([2]).rows):
        pass
    bench.install(3, quick)
    assert bench.masks([3, 2]).rows.tolist() == [0, 1]


def test_a_credit_grows_with_what_it_is_used_for():
    bill = Bill(Credit(), 0.0, seconds=mask_jobs.CREDIT_SECONDS + 1.0)
    assert bill.is_exceeded
    bill.num_masks = 201
    assert not bill.is_exceeded


def test_a_step_that_has_only_slow_masks_waits_no_longer_than_until_another_is_there(
    rig, monkeypatch
):
    slow = rig.compile(LANGUAGES[0].params)
    gate = Gate(monkeypatch, rig.grammars.compiler._compiled.find(slow))
    monkeypatch.setattr("pagewire_worker.grammars.mask_threads.SLOW_WAIT_SECONDS", 1e9)
    rig.driver.model_runner.hurry_when(lambda: True)
    result = rig.driver.run_well([(0, 0, NUM, 1, 0)], new_sequences=[new(0, slow)])
    assert result.counts.tolist() == [0]
    rig.driver.model_runner.hurry_when(lambda: False)
    gate.is_open.set()
    assert rig.driver.run_well([(0, NUM - 1, 1, 1, 0)]).counts.tolist() == [1]
