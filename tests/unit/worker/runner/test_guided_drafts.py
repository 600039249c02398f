"""Sequences with grammars and drafts give the tokens and values of those without drafts."""

import random

import numpy as np
import pytest
from unit.worker.grammars.test_grammar_steps import EOS, RANDOM, VOCAB, Rig, running

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams as Params
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.grammars import mask_jobs
from pagewire_worker.grammars.drafts import TableDrafts
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.speculation.lookups import Lookups
from pagewire_worker.speculation.speculator import Speculator
from support.cells.worker_driver import GREEDY
from support.fakes.scripted_finder import ScriptedFinder
from support.oracles.grammars import LANGUAGES

WITH_LOGPROBS = SamplingParams(temperature=1.0, seed=5, logprobs=2, max_tokens=None)


@pytest.fixture
def rig(monkeypatch):
    # However busy the machine is, masks behind drafts are computed.
    monkeypatch.setattr(mask_jobs, "AHEAD_SECONDS", 10.0)
    monkeypatch.setattr("pagewire_worker.grammars.table.AHEAD_SECONDS", 10.0)
    made = Rig()
    logits = made.backend.logits
    made.backend.greedy = lambda hidden, *_: SampledTokens(logits(hidden).argmax(dim=1))
    yield made
    made.grammars.table.shutdown()


def speculate(rig, finders):
    """Let the drafts of `finders` be verified, five of each sequence and step."""
    runner = rig.driver.model_runner
    grammars = None if finders else TableDrafts(rig.grammars.table)
    speculator = Speculator(
        proposer=Lookups(finders, grammars), table=runner._slots, costs=None, most=5
    )
    runner._speculator, runner._draft_source = speculator, speculator.drafts
    return speculator


def step(rig, sequences, each=lambda sequence: None):
    """Run a step of those that have not ended; drop what comes behind an end."""
    waiting = [one for one in sequences if EOS not in one.output]
    if waiting:
        rig.driver.step(waiting, 512)
    for one in waiting:
        each(one)
    return bool(waiting)


def run(rig, ids, samplings, each=lambda sequence: None):
    """Return the values of each token of a sequence per grammar, up to its end."""
    pairs = zip(ids, samplings, strict=True)
    sequences = [running(slot, one, sampling) for slot, (one, sampling) in enumerate(pairs)]
    num_steps = 0
    while step(rig, sequences, each):
        num_steps += 1
    for one in sequences:
        rig.driver.release(one)
    return [values_of(one) for one in sequences], num_steps, sequences


def values_of(sequence):
    """Return (token, log-probability) of each token, up to the end."""
    values = []
    for result in {id(one): one for one in sequence.results}.values():
        owners = np.asarray(result.slots).repeat(np.asarray(result.counts)).tolist()
        for row, slot in enumerate(owners):
            if slot == sequence.slot:
                logprob = result.logprobs[row] if len(result.logprobs) else np.nan
                shown = b"" if np.isnan(logprob) else logprob.tobytes()
                values.append((int(result.token_ids[row]), shown))
    end = [token for token, _ in values].index(EOS)
    return values[: end + 1]


SAMPLINGS = [(GREEDY, RANDOM, WITH_LOGPROBS)[number % 3] for number in range(len(LANGUAGES))]


@pytest.mark.parametrize("wrong_every", [0, 1, 3])
def test_right_and_wrong_drafts_change_nothing(rig, wrong_every):
    """Scripted drafts go on behind the end, and wrong ones are mostly forbidden."""
    ids = [rig.compile(language.params) for language in LANGUAGES]
    expected, num_before, sequences = run(rig, ids, SAMPLINGS)
    futures = [[*one.prompt, *one.output, EOS, 7] for one in sequences]
    speculator = speculate(rig, [ScriptedFinder(futures, wrong_every)])
    found, num_steps, _ = run(rig, ids, SAMPLINGS)
    assert found == expected
    assert speculator.counts.num_tokens > 50
    assert (num_steps < 0.8 * num_before) == (wrong_every != 1)
    dice = random.Random(3)

    def preempt(sequence):
        if dice.random() < 0.2 and EOS not in sequence.output:
            rig.driver.preempt(sequence)

    assert run(rig, ids, SAMPLINGS, preempt)[0] == expected


def test_forced_tokens_are_right_drafts(rig):
    keys = {"firstname": {"type": "boolean"}, "occupation": {"enum": ["gardener", "teacher"]}}
    params = Params(json={"properties": keys, "required": [*keys], "additionalProperties": False})
    ids = [rig.compile(params), None, rig.compile(Params(choice=("a single choice",)))]
    samplings = [GREEDY, SamplingParams(temperature=1.0, seed=2, logit_bias={EOS: 9.0}), RANDOM]
    expected, num_before, _ = run(rig, ids, samplings)
    speculator = speculate(rig, [])
    found, num_steps, _ = run(rig, ids, samplings)
    assert found == expected
    assert speculator.counts.right_at.sum() > 0
    assert num_steps <= num_before


@pytest.mark.parametrize("share_late", [0.3, 0.7])
def test_late_masks_of_any_rows_change_nothing(rig, monkeypatch, share_late):
    ids = [rig.compile(language.params) for language in LANGUAGES[:6]]
    expected, _, sequences = run(rig, ids, SAMPLINGS[:6])
    futures = [[*one.prompt, *one.output, EOS] for one in sequences]
    speculator = speculate(rig, [ScriptedFinder(futures, 4)])
    table, dice = rig.grammars.table, random.Random(8)
    begin = table.begin

    def begin_late(slots, positions, slot_table):
        wait = begin(slots, positions, slot_table)

        def wait_less():
            masks = wait()
            is_late = [dice.random() < share_late for _ in masks.rows]
            kept = [not one for one in is_late]
            late = np.concatenate((masks.late, masks.rows[is_late]))
            return GrammarBitmask(masks.rows[kept], masks.bits[kept], late, masks.given_up)

        return wait_less

    monkeypatch.setattr(table, "begin", begin_late)
    assert run(rig, ids, SAMPLINGS[:6])[0] == expected
    assert speculator.counts.right_at.sum() > 0


def test_another_grammar_fails_meanwhile(rig):
    """One that is given up, and one that fails the step, which is planned again with its drafts."""
    left, right = rig.compile(LANGUAGES[0].params), rig.compile(Params(choice=("a", "b")))
    expected, _, (before,) = run(rig, [left], [RANDOM])
    speculator = speculate(rig, [ScriptedFinder([[*before.prompt, *before.output, EOS]])])
    sequence, culprit = running(0, left, RANDOM), running(1, right)
    culprit.output = [VOCAB - 1]  # no token of its grammar
    step(rig, [sequence])
    assert sequence.num_offered > 0
    step(rig, [sequence, culprit])
    assert list(sequence.results[-1].given_up) == [1]
    assert len(sequence.output) > 2
    rig.driver.release(culprit)
    rig.backend.num_failures = 1
    drafts = min(sequence.num_offered, 3)
    row = (0, sequence.num_tokens - 1, 1, 1, 0)
    failed = rig.driver.run([row], num_drafts=[drafts], freed_slots=[1])
    rig.driver.freed = []
    assert failed.failure is not None
    while step(rig, [sequence]):
        pass
    assert values_of(sequence) == expected[0]
    assert speculator.counts.right_at.sum() > 0
