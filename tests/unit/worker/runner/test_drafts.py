"""Steps with drafts give the tokens and values of steps without, bit for bit."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_worker.speculation.lookups import Lookups
from pagewire_worker.speculation.ngram import NgramFinder
from support.cells.worker_driver import GREEDY, PROMPT, Driver, Running, load, request, start
from support.fakes.scripted_finder import ScriptedFinder

ON = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "adaptive": False})
MAX_TOKENS = 24


def make_pair(checkpoint, **settings):
    """Drivers of the same model: one that never speculates, and one that does."""
    plain = Driver.of(load(checkpoint("qwen3"), **settings))
    return plain, Driver.of(load(checkpoint("qwen3"), speculative_config=ON, **settings))


@pytest.fixture(scope="module")
def exact_pair(checkpoint):
    return make_pair(checkpoint, cpu_backend="fused")


@pytest.fixture(scope="module")
def torch_pair(checkpoint):
    return make_pair(checkpoint, cpu_backend="torch", block_size=4)


def speculator_of(driver):
    return driver.model_runner._speculator


def use(driver, finder):
    """Let drafts be those of `finder`."""
    speculator_of(driver)._proposer = Lookups([finder])
    return finder


SAMPLINGS = [
    GREEDY,
    SamplingParams(seed=1, temperature=1.0, max_tokens=None),
    SamplingParams(seed=2, temperature=0.7, top_p=0.9, top_k=50, max_tokens=None, logprobs=3),
    SamplingParams(
        seed=3,
        temperature=0.8,
        repetition_penalty=1.3,
        frequency_penalty=0.4,
        presence_penalty=0.2,
        max_tokens=None,
        logprobs=0,
    ),
    replace(GREEDY, min_tokens=10, stop_token_ids=tuple(range(0, 512, 5)), logprobs=1),
    replace(GREEDY, logit_bias={7: 5.0}, bad_token_sequences=((7, 7), (8,)), prompt_logprobs=2),
    replace(GREEDY, prompt_logprobs=1, presence_penalty=0.5),
]
PROMPTS = [[(11 * i + j * (i + 3)) % 512 for j in range(5 + 7 * i)] for i in range(len(SAMPLINGS))]


def run_all(driver, samplings=SAMPLINGS, prompts=PROMPTS, budget=64):
    sequences = [
        Running(slot, prompt, sampling, MAX_TOKENS)
        for slot, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True))
    ]
    results = driver.finish(sequences, budget=budget)
    for sequence in sequences:
        sequence.results = results  # those of its prompt, too
    return sequences


def values_of(sequence):
    """All values that the results have of a sequence: per token, and of its prompt by position."""
    tokens, prompt = [], {}
    for result in sequence.results:
        first = 0
        for slot, count in zip(result.slots, result.counts, strict=True):
            rows = range(first, first + int(count))
            first += int(count)
            if slot == sequence.slot:
                tokens += [_row(result, row) for row in rows]
        if result.prompt is not None:
            prompt |= _prompt_values(result.prompt, sequence.slot)
    return tokens, prompt


def _prompt_values(prompt, slot):
    found, first = {}, 0
    rows = zip(prompt.slots, prompt.first_positions, prompt.counts, strict=True)
    for owner, position, count in rows:
        values = np.asarray(prompt.logprobs[first : first + int(count)], dtype=np.float32)
        if owner == slot:
            found |= {int(position) + index: one.tobytes() for index, one in enumerate(values)}
        first += int(count)
    return found


def _row(result, row):
    has_logprobs, has_top = len(result.logprobs) > 0, len(result.num_top) > 0
    num_top = int(result.num_top[row]) if has_top else 0
    begin = int(np.sum(result.num_top[:row])) if has_top else 0
    logprob = np.float32(result.logprobs[row]) if has_logprobs else np.float32(np.nan)
    is_asked = not np.isnan(logprob)
    return (
        int(result.token_ids[row]),
        logprob.tobytes() if is_asked else b"",
        int(result.ranks[row]) if is_asked else 0,
        np.asarray(result.top_token_ids[begin : begin + num_top]).tolist(),
        np.asarray(result.top_logprobs[begin : begin + num_top], dtype=np.float32).tobytes(),
    )


@pytest.mark.parametrize("wrong_every", [0, 1, 2, 3, 5])
def test_right_and_wrong_drafts_change_nothing(exact_pair, wrong_every):
    expected, found = run_both(exact_pair, wrong_every)
    for one, other in zip(expected, found, strict=True):
        assert one.output == other.output
        assert values_of(one) == values_of(other)
    num_steps = [len(each[0].results) for each in (expected, found)]
    assert (num_steps[1] < num_steps[0] / 2) == (wrong_every in (0, 5))


@pytest.mark.parametrize("wrong_every", [0, 3])
def test_torch_gives_the_same_tokens(torch_pair, wrong_every):
    """Blocks are smaller than the drafts; values differ in their last bits, as in any batch."""
    expected, found = run_both(torch_pair, wrong_every)
    assert [one.output for one in expected] == [one.output for one in found]


def run_both(drivers, wrong_every):
    """Return the sequences of both drivers; the second one verifies drafts of the first's."""
    plain, speculative = drivers
    expected = run_all(plain)
    futures = [[*one.prompt, *one.output] for one in expected]
    finder = use(speculative, ScriptedFinder(futures, wrong_every))
    found = run_all(speculative)
    assert finder.num_proposed > 100
    return expected, found


def test_drafts_of_the_sequence_itself(exact_pair):
    """A prompt that repeats: the n-gram proposer finds what the model goes on with, or not."""
    plain, speculative = exact_pair
    use(speculative, NgramFinder(1, 3))
    before = speculator_of(speculative).counts.num_tokens
    prompts = [[5, 6, 7, 8] * 6, [9] * 20, list(range(40, 60))]
    greedy = [GREEDY, replace(GREEDY, logit_bias={9: 100.0}), GREEDY]
    expected = run_all(plain, greedy, prompts)
    found = run_all(speculative, greedy, prompts)
    assert [one.output for one in expected] == [one.output for one in found]
    counts = speculator_of(speculative).counts
    assert counts.num_tokens > before
    assert counts.right_at[-1] > 0


def test_a_preempted_sequence_goes_on_with_accepted_drafts(exact_pair):
    plain, speculative = exact_pair
    (expected,) = run_all(plain, SAMPLINGS[1:2], PROMPTS[1:2])
    future = [*expected.prompt, *expected.output]
    use(speculative, ScriptedFinder([future], 4))
    sequence = Running(0, PROMPTS[1], SAMPLINGS[1], MAX_TOKENS)
    num_before = 0
    while not sequence.is_done:
        speculative.step([sequence], budget=64)
        if len(sequence.output) > num_before + 3:
            num_before = len(sequence.output)
            speculative.preempt(sequence)
    speculative.release(sequence)
    assert sequence.output == expected.output


def test_drafts_fill_the_step_up_to_its_end(exact_pair):
    """Drafts of one sequence and chunks of others are in one step, prompt values included."""
    plain, speculative = exact_pair
    expected = run_all(plain, budget=9)
    futures = [[*one.prompt, *one.output] for one in expected]
    use(speculative, ScriptedFinder(futures, 7))
    found = run_all(speculative, budget=9)
    assert [values_of(one) for one in expected] == [values_of(one) for one in found]


@pytest.mark.parametrize(
    ("num_drafts", "samples", "reason"),
    [
        ([9], 1, "too few blocks for its drafts"),
        ([1], 0, "drafts behind what samples no token"),
        ([1, 1], 1, "2 num_drafts for 1 slots"),
        ([250], 1, "tokens are more than|too few blocks"),
    ],
)
def test_drafts_that_a_slot_cannot_have_are_refused(exact_pair, num_drafts, samples, reason):
    _, speculative = exact_pair
    end = len(PROMPT) if samples else len(PROMPT) - 1
    result = speculative.run(
        [(0, 0, end, samples, 0)], new_sequences=[request(0)], num_drafts=num_drafts
    )
    assert re.search(reason, result.failure.message)
    assert speculative.run([], freed_slots=[0]).failure is None


def test_a_worker_verifies_no_more_than_it_has(exact_pair):
    """Drafts are granted to a slot that has none: the step samples one token."""
    plain, speculative = exact_pair
    (expected,) = run_all(plain, [GREEDY], [PROMPT])
    use(speculative, ScriptedFinder([]))
    start(speculative)
    result = speculative.run([(0, len(PROMPT), 1, 1, 0)], num_drafts=[4])
    assert result.token_ids.tolist() == expected.output[1:2]
    assert result.counts.tolist() == [1]
    speculative.run([], freed_slots=[0])


def test_no_drafts_are_offered_of_beams_and_poolings(exact_pair):
    _, speculative = exact_pair
    speculator = speculator_of(speculative)
    use(speculative, NgramFinder(1, 2))
    plan = speculative.plan(
        [],
        new_sequences=[
            request(0),
            request(1, num_candidates=2),
            request(2, grammar_id=b"g" * 16),
            request(3, pooling=PoolingParams()),
        ],
        fork_slots=[4, 5],
        fork_sources=[0, 1],
        fork_choices=[1, 1],
    )
    speculator.follow(plan)
    assert sorted(speculator._slots) == [0, 2, 4]
    speculator.clear()


def test_numbers_that_break_behind_a_wrong_draft_break_nothing(exact_pair, monkeypatch):
    """A failed row is one of the sequence only if every draft before it was right."""
    plain, speculative = exact_pair
    (expected,) = run_all(plain, [GREEDY], [PROMPT])
    future = [*PROMPT, *expected.output]
    use(speculative, ScriptedFinder([future], 2))
    backend = speculative.model_runner.backend
    greedy, forward = backend.greedy, backend.forward

    def break_last_sample(hidden, *slots):
        sampled = greedy(hidden, *slots)
        if len(hidden) > 2:
            sampled.faults[-1] = 1
        return sampled

    def break_last_row(batch):
        hidden = forward(batch)
        if len(batch.token_ids) in (3, 4, 5):
            batch.faults[-1] = 1
        return hidden

    monkeypatch.setattr(backend, "greedy", break_last_sample)
    monkeypatch.setattr(backend, "forward", break_last_row)
    sequence = Running(0, PROMPT, GREEDY, MAX_TOKENS)
    results = speculative.finish([sequence], budget=64)
    assert sequence.output == expected.output
    assert not any(len(result.failed_slots) for result in results)
    use(speculative, ScriptedFinder([future]))
    sequence = Running(0, PROMPT, GREEDY, MAX_TOKENS)
    results = speculative.finish([sequence], budget=64)
    assert any(len(result.failed_slots) for result in results)
