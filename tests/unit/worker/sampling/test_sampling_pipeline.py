"""The sampler with all parameters mixed equals a plain implementation of the same formulas."""

import random

import numpy as np
import pytest

from pagewire_shared.sampling.params import SamplingParams
from support.oracles.plain_sampler import PlainRow, choose
from support.oracles.sampler_rows import sample_rows

VOCAB = 45


def pick(generator, share, value, neutral):
    return value() if generator.random() < share else neutral


def some_ids(generator, most):
    return tuple(generator.choices(range(VOCAB), k=generator.randint(1, most)))


def bad_sequences(generator, prompt, output):
    """Sequences of which many are near: behind the output, behind the prompt, too long, of one."""
    found = []
    for _ in range(generator.randint(1, 6)):
        behind = generator.choice([output, prompt + output, prompt])
        length = generator.randint(0, min(4, len(behind)))
        prefix = behind[len(behind) - length :]
        if prefix and generator.random() < 0.3:
            prefix = [(prefix[0] + 1) % VOCAB, *prefix[1:]]
        found.append((*prefix, generator.randrange(VOCAB)))
    return tuple(found)


def random_row(generator, share):
    """One row whose parameters are each present with probability `share`."""
    prompt = generator.choices(range(VOCAB), k=generator.randint(1, 20))
    output = generator.choices(range(VOCAB), k=generator.randint(0, 12))
    uniform, choice = generator.uniform, generator.choice

    def some(value, neutral):
        return pick(generator, share, value, neutral)

    sampling = SamplingParams(
        max_tokens=None,
        seed=generator.getrandbits(64),
        temperature=choice([0.0, 0.0, 0.4, 1.0, 1.9]),
        top_p=some(lambda: uniform(0.05, 1), 1.0),
        top_k=some(lambda: generator.randint(1, VOCAB), 0),
        min_p=some(lambda: uniform(0, 0.4), 0.0),
        min_tokens=some(lambda: generator.randint(0, 12), 0),
        stop_token_ids=some(lambda: some_ids(generator, 5), ()),
        logprobs=some(lambda: generator.randint(0, 20), None),
        presence_penalty=some(lambda: uniform(-2, 2), 0.0),
        frequency_penalty=some(lambda: uniform(-2, 2), 0.0),
        repetition_penalty=some(lambda: choice([0.3, 0.9, 1.2, 4.0]), 1.0),
        logit_bias=some(lambda: {one: uniform(-6, 6) for one in some_ids(generator, 9)}, {}),
        allowed_token_ids=some(lambda: some_ids(generator, choice([1, 3, 30])), ()),
        bad_token_sequences=some(lambda: bad_sequences(generator, prompt, output), ()),
    )
    return PlainRow(
        logits=[float(np.float32(generator.gauss(0, 3))) for _ in range(VOCAB)],
        sampling=sampling,
        prompt=prompt,
        output=output,
        choice=generator.randrange(4),
        eos=set(some(lambda: some_ids(generator, 3), ())),
        mask=some(lambda: set(some_ids(generator, choice([1, 4, 60]))), None),
    )


def check(rows, sampled):
    """Compare what was sampled, and for rows that asked what is reported of it."""
    tokens = sampled.token_ids.tolist()
    found = sampled.logprobs
    for index, row in enumerate(rows):
        expected = choose(row)
        assert tokens[index] == expected.token_id, row
        if row.sampling.logprobs is None:
            continue
        assert float(found.logprobs[index]) == pytest.approx(expected.logprob, abs=2e-5)
        assert int(found.ranks[index]) == expected.rank
        num_top = len(expected.top)
        ids = [] if found.top_ids is None else found.top_ids[index, :num_top].tolist()
        assert ids == list(expected.top)
        if num_top:
            values = found.top_logprobs[index, :num_top].tolist()
            assert values == pytest.approx(list(expected.top.values()), abs=2e-5)


@pytest.mark.parametrize("share", [0.1, 0.35, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_batches_equal_the_plain_formulas(seed, share):
    generator = random.Random(f"{seed} {share}")
    rows = [random_row(generator, share) for _ in range(40)]
    check(rows, sample_rows(rows, seed=seed))


def test_a_row_is_the_same_alone_and_among_others():
    generator = random.Random(8)
    rows = [random_row(generator, 0.5) for _ in range(24)]
    together = sample_rows(rows).token_ids.tolist()
    assert [int(sample_rows([row], seed=4).token_ids[0]) for row in rows] == together


def greedy(logits, **fields):
    prompt, output = fields.pop("prompt", [0]), fields.pop("output", [])
    eos, mask = fields.pop("eos", ()), fields.pop("mask", None)
    sampling = SamplingParams(temperature=0.0, max_tokens=None, **fields)
    row = PlainRow(logits, sampling, prompt, output, eos=eos, mask=mask)
    (token_id,) = sample_rows([row]).token_ids.tolist()
    return token_id


# 3 is the most likely, then 2, 1, 0.
LADDER = [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 3),
        ({"mask": {0, 1}}, 1),
        ({"allowed_token_ids": (0, 2)}, 2),
        ({"bad_token_sequences": ((3,), (2,))}, 1),
        ({"bad_token_sequences": ((0, 3),), "output": [0]}, 2),
        ({"bad_token_sequences": ((0, 3),), "output": [0, 1]}, 3),
        ({"bad_token_sequences": ((1, 0, 3),), "output": [2, 1, 0]}, 2),
        ({"bad_token_sequences": ((1, 0, 3),), "output": [0]}, 3),
        # The prompt is no output: neither alone nor as the beginning of a match.
        ({"bad_token_sequences": ((0, 3),), "prompt": [0]}, 3),
        ({"bad_token_sequences": ((1, 0, 3),), "prompt": [1], "output": [0]}, 3),
        ({"min_tokens": 1, "eos": {3}}, 2),
        ({"min_tokens": 1, "eos": {3}, "output": [0]}, 3),
        ({"logit_bias": {0: 3.5, 1: 1.5}}, 0),
        ({"logit_bias": {3: -100.0}}, 2),
        # Bias comes first: a positive logit made negative is multiplied, not divided.
        ({"logit_bias": {3: -4.5, 2: -4.0}, "repetition_penalty": 9.0, "prompt": [3]}, 1),
        ({"repetition_penalty": 2.0, "prompt": [3]}, 2),
        ({"repetition_penalty": 2.0, "output": [3]}, 2),
        ({"frequency_penalty": 0.6, "output": [3, 3]}, 2),
        ({"frequency_penalty": 0.6, "output": [3]}, 3),
        ({"frequency_penalty": 2.0, "presence_penalty": 2.0, "prompt": [3, 3, 3]}, 3),
        ({"presence_penalty": 1.5, "output": [3, 3, 3]}, 2),
        ({"presence_penalty": 0.6, "output": [3, 3, 3]}, 3),
        # Excluded is excluded, whatever is added.
        ({"bad_token_sequences": ((3,),), "logit_bias": {3: 100.0}}, 2),
        # An exclusion that would leave nothing is not applied; the earlier one is the stronger.
        ({"mask": {0, 1}, "allowed_token_ids": (2, 3)}, 1),
        ({"mask": {1}, "bad_token_sequences": ((1,),)}, 1),
        ({"mask": {1}, "min_tokens": 1, "eos": {1}}, 1),
        ({"allowed_token_ids": (0, 1), "bad_token_sequences": ((0,), (1,))}, 1),
        ({"bad_token_sequences": ((0,), (1,), (3,)), "min_tokens": 1, "eos": {2}}, 2),
        ({"allowed_token_ids": (0, 1), "bad_token_sequences": ((1,),), "min_tokens": 1,
          "eos": {0}}, 0),
    ],
)  # fmt: skip
def test_single_rules(fields, expected):
    assert greedy(LADDER, **fields) == expected


def test_tokens_beyond_the_bits_of_a_mask_are_excluded():
    logits = [0.0] * 70
    logits[69], logits[31], logits[40] = 9.0, 5.0, 7.0
    assert greedy(logits, mask={31, 40, 69}) == 69


@pytest.mark.parametrize("temperature", [1e-6, 1e-5, 1e-4, 2.0])
@pytest.mark.parametrize("filters", [{}, {"top_p": 0.5}, {"min_p": 0.5}, {"top_k": 2}])
def test_extreme_values_choose_a_token_that_is_there(temperature, filters):
    sampling = SamplingParams(
        seed=3, temperature=temperature, repetition_penalty=1e-38, max_tokens=None, **filters
    )
    rows = [PlainRow([-9.0, 2.0, 1.0, 60.0], sampling, prompt=[1, 2]) for _ in range(3)]
    assert set(sample_rows(rows).token_ids.tolist()) <= {1, 2}


def test_a_temperature_close_to_0_is_greedy():
    sampling = SamplingParams(seed=3, temperature=9e-6, max_tokens=None)
    rows = [PlainRow([1.0, 1.00001, 0.5], sampling, choice=choice) for choice in range(20)]
    assert set(sample_rows(rows).token_ids.tolist()) == {1}
