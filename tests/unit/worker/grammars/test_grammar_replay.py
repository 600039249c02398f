"""Sequences that start again, fork, or were in a step that failed: their masks are the same."""

import threading

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.grammars.matcher import GrammarMatcher
from support.cells.grammar_bench import Bench
from support.oracles.grammars import MOODS, PERSON


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.table.shutdown()


def run_on(bench, grammar_id, *, slot=0, num_tokens=25, seed=5):
    """Return the output and the masks of a sequence that nothing happens to."""
    bench.install(slot, grammar_id)
    generator = torch.Generator().manual_seed(seed)
    masks = []
    for _ in range(num_tokens):
        masks.append(bench.masks([slot]).bits.copy())
        bench.step([slot], generator)
    masks.append(bench.masks([slot]).bits.copy())
    output = bench.output(slot)
    bench.free(slot)
    return output, masks


LONG = Params(json={"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 20})


@pytest.mark.parametrize("params", [LONG, Params(json=PERSON), Params(choice=MOODS)])
def test_a_sequence_installed_again_goes_on_with_the_same_masks(bench, params):
    """Preempted, or moved here from a worker that is gone."""
    grammar_id = bench.compile(params)
    output, masks = run_on(bench, grammar_id)
    other = Bench()
    other.compile(params)
    for place in (bench, other):
        for position in range(len(masks)):
            place.install(9, grammar_id, output[:position])
            assert np.array_equal(place.masks([9]).bits, masks[position])
            if position < len(output):
                place.write([9], [output[position]])
                assert np.array_equal(place.masks([9]).bits, masks[position + 1])
            place.free(9)
    other.table.shutdown()


def test_a_step_that_fails_before_or_after_its_tokens_are_accepted(bench):
    """What a failed step sampled is no part of the sequence, whatever is sampled instead."""
    grammar_id = bench.compile(LONG)
    output, masks = run_on(bench, grammar_id)
    bench.install(0, grammar_id)
    for position, token in enumerate(output):
        if position % 3 == 0:
            # Ended after the masks were asked for, and before they were waited for.
            bench.begin([0])
        if position % 4 == 1:
            # Accepted another token, and then undone: the slots never counted it.
            others = sorted(bench.allowed(0) - {token})
            bench.table.accept(np.array([0]), np.array(others[:1] or [token]))
        assert np.array_equal(bench.masks([0]).bits, masks[position])
        bench.write([0], [token])
    assert np.array_equal(bench.masks([0]).bits, masks[-1])


@pytest.mark.parametrize("is_begun", [False, True], ids=["before", "in"])
def test_a_fork_that_is_undone_leaves_the_slot_its_own_sequence(bench, is_begun):
    """Of the same length, so that only the tokens tell; undone before its step began, or in it."""
    grammar_id = bench.compile(Params(choice=("ax", "by")))
    for slot, letter in enumerate("ab"):
        bench.install(slot, grammar_id)
        bench.masks([slot])
        bench.write([slot], bench.ids(letter))
        bench.masks([slot])
    slots, sources = np.array([0]), np.array([1])
    own = bench.slots.save(slots)
    bench.slots.restore(slots, bench.slots.save(sources))
    bench.table.fork(slots, sources)
    if is_begun:
        assert bench.allowed(0) == set(bench.ids("y"))
    bench.slots.restore(slots, own)
    assert bench.allowed(0) == set(bench.ids("x"))


def test_steps_that_go_through_read_nothing_from_the_device(bench):
    """What a step sampled is known here; to ask the device for it would be to wait for it."""
    output, masks = run_on(bench, bench.compile(LONG))
    bench.install(0, LONG.digest)
    bench.masks([0])
    bench.slots.tokens = None
    for position, token in enumerate(output):
        bench.table.accept(np.array([0]), np.array([token]))
        wait = bench.table.begin(np.array([0]), np.array([position + 1]), bench.slots)
        assert np.array_equal(wait().bits, masks[position + 1])


def test_nobody_waits_for_masks_that_nobody_wants(bench, monkeypatch):
    """A step that failed has asked for masks; what they were asked for may change at once."""
    opened, begun, catch_up = threading.Event(), threading.Event(), GrammarMatcher.catch_up

    def late(self, *seconds):
        begun.set()
        assert opened.wait(20)
        return catch_up(self, *seconds)

    monkeypatch.setattr(GrammarMatcher, "catch_up", late)
    first, second = (bench.compile(Params(choice=(text,))) for text in "ab")
    none = np.array([0])
    for change in (
        lambda: bench.table.free(0),
        lambda: bench.table.fork(none, np.array([1])),
        bench.table.clear,
    ):
        opened.clear()
        begun.clear()
        bench.free(0, 1)
        bench.install(0, first)
        bench.begin([0])
        assert begun.wait(20)
        change()  # in this thread, which would wait for ever
        opened.set()
        bench.free(0)
        bench.install(0, second)
        assert bench.allowed(0) == set(bench.ids("b"))


def test_forks_go_on_from_their_source(bench):
    grammar_id = bench.compile(LONG)
    output, masks = run_on(bench, grammar_id)
    bench.install(0, grammar_id)
    for token in output[:10]:
        bench.masks([0])
        bench.write([0], [token])
    forked, source = np.array([1, 2]), np.array([0, 0])
    bench.slots.restore(forked, bench.slots.save(source))
    bench.table.fork(forked, source)
    generator = torch.Generator().manual_seed(77)
    for position in range(10, len(output)):
        assert np.array_equal(bench.masks([1]).bits, masks[position])
        bench.write([1], [output[position]])
        bench.step([2], generator)
    assert np.array_equal(bench.masks([0]).bits, masks[10])
    assert bench.output(2) != output
    bench.install(3, None)
    bench.table.fork(np.array([1]), np.array([3]))
    assert bench.masks([1, 3]) is None


def test_forks_that_swap_read_all_sources_first(bench):
    ids = [bench.compile(Params(choice=(text,))) for text in ("a", "b")]
    for slot, grammar_id in enumerate(ids):
        bench.install(slot, grammar_id)
    bench.table.fork(np.array([0, 1]), np.array([1, 0]))
    assert bench.allowed(0) == set(bench.ids("b"))
    assert bench.allowed(1) == set(bench.ids("a"))
