"""How often tokens are sampled: chi-square against the probabilities of the plain formulas.

The seeds are fixed, so each test passes always or never.
"""

import numpy as np
import pytest

from pagewire_shared.sampling.params import SamplingParams
from support.oracles.plain_sampler import PlainRow, chances_of
from support.oracles.sampler_rows import sample_rows

NUM_SAMPLES = 4000
LOGITS = [1.1, -0.7, 0.4, 2.0, -1.5, 0.0, 1.6, 0.9]
PROMPT = [3, 0, 3]
OUTPUT = [6, 6, 1, 7]

LIMITS = {1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9, 7: 29.9}
"""By degrees of freedom: what a right sampler stays below but for once in 10 000 times."""

CASES = {
    "plain": {},
    "hot": {"temperature": 1.8},
    "cold": {"temperature": 0.6},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.75},
    "min_p": {"min_p": 0.2},
    "logit_bias": {"logit_bias": {4: 2.5, 3: -1.0, 0: 0.5}},
    "presence": {"presence_penalty": 1.2},
    "frequency": {"frequency_penalty": -0.8},
    "repetition": {"repetition_penalty": 1.7},
    "all penalties": {
        "presence_penalty": -0.5,
        "frequency_penalty": 0.7,
        "repetition_penalty": 0.6,
    },
    "allowed": {"allowed_token_ids": (1, 3, 5, 6)},
    "bad sequences": {"bad_token_sequences": ((3,), (7, 6), (0, 7, 0))},
    "everything": {
        "temperature": 1.4,
        "top_p": 0.95,
        "top_k": 6,
        "min_p": 0.02,
        "logit_bias": {4: 2.0},
        "repetition_penalty": 1.3,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "bad_token_sequences": ((7, 0),),
    },
}


@pytest.mark.parametrize("name", CASES)
def test_tokens_are_sampled_as_often_as_they_are_likely(name):
    samplings = (
        SamplingParams(seed=7919 * number, max_tokens=None, **CASES[name])
        for number in range(NUM_SAMPLES)
    )
    rows = [PlainRow(LOGITS, sampling, PROMPT, OUTPUT) for sampling in samplings]
    tokens = sample_rows(rows).token_ids.numpy()
    counts = np.bincount(tokens, minlength=len(LOGITS))
    expected = np.array(chances_of(rows[0])) * NUM_SAMPLES
    possible = expected > 0
    assert counts[~possible].sum() == 0
    deviations = (counts - expected)[possible] ** 2 / expected[possible]
    assert deviations.sum() < LIMITS[int(possible.sum()) - 1]


def test_the_limits_notice_the_wrong_case():
    # Or the test above would not say which parameter is right.
    chances = {}
    for name, case in CASES.items():
        sampling = SamplingParams(seed=0, max_tokens=None, **case)
        chances[name] = chances_of(PlainRow(LOGITS, sampling, PROMPT, OUTPUT))
    for name, own in chances.items():
        for other, foreign in chances.items():
            if name == other:
                continue
            expected = np.maximum(np.array(foreign) * NUM_SAMPLES, 1e-9)
            deviations = (np.array(own) * NUM_SAMPLES - expected) ** 2 / expected
            assert deviations.sum() > 2 * LIMITS[7], (name, other)
