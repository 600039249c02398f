"""The sampling formula: against plain Python, for every filter, alone and in a batch."""

import math

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.sampling import sampler
from pagewire_worker.sampling.filters import apply_filters
from pagewire_worker.sampling.sampler import TokenNoise, gumbel_argmax, sample
from pagewire_worker.sampling.sampling_table import SamplingTable
from support.oracles.plain_sampler import noise_of

VOCAB = 203  # no multiple of 4

KNOWN_TOKENS = [114, 110, 112, 154, 122, 45, 65, 45]


def rows_of(requests, positions, device=torch.device("cpu")):  # noqa: B008 - a constant
    table = SamplingTable(len(requests), device)
    for slot, (params, choice, eos) in enumerate(requests):
        table.set(
            NewSequence(
                slot=slot,
                request_id=b"r",
                choice=choice,
                prompt_token_ids=[1],
                emitted_token_ids=[],
                sampling=params,
                block_ids=[],
                eos_token_ids=eos,
            )
        )
    return table.rows(np.arange(len(requests)), np.array(positions))


def logits_of(num_rows, scale=3.0, seed=0, vocab=VOCAB):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((num_rows, vocab), generator=generator) * scale


def params(**fields):
    return SamplingParams(**{"max_tokens": None, "seed": 1, **fields})


def expected_token(logits, seed, position, choice, temperature):
    scaled = (logits / torch.tensor(temperature)).tolist()
    sums = [
        value + noise_of(seed, position, choice, token) if value > -math.inf else -math.inf
        for token, value in enumerate(scaled)
    ]
    return max(range(len(sums)), key=lambda token: (sums[token], -token))


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 + 12345, 2**64 - 1])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_tokens_follow_the_formula(seed, temperature):
    logits = logits_of(6)
    places = [(0, 0), (1, 0), (2, 1), (3, 7), (100_000, 0), (5, 127)]
    requests = [(params(seed=seed, temperature=temperature), c, []) for _, c in places]
    chosen = sample(logits, rows_of(requests, [p for p, _ in places])).token_ids.tolist()
    for row, (position, choice) in enumerate(places):
        expected = expected_token(logits[row], seed, position, choice, temperature)
        assert chosen[row] == expected


def test_known_tokens():
    # Changing any of these breaks the resume of streams across versions.
    logits = torch.linspace(-1, 1, VOCAB).repeat(8, 1)
    requests = [(params(seed=0x0123456789ABCDEF), 0, [])] * 8
    chosen = sample(logits, rows_of(requests, range(8))).token_ids.tolist()
    assert chosen == KNOWN_TOKENS


def noise_for(num_rows):
    ids = torch.arange(num_rows)
    return TokenNoise(ids * 77, ids * 13, ids, torch.zeros_like(ids))


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0, 100.0])
def test_noise_only_where_it_matters_gives_the_same_tokens(scale, monkeypatch):
    logits, noise = logits_of(12, scale, vocab=4001), noise_for(12)
    dense = (logits + noise.dense(4001)).argmax(dim=1)
    monkeypatch.setattr(sampler, "DENSE_SHARE", 2.0)
    assert gumbel_argmax(logits, noise).equal(dense)
    monkeypatch.setattr(sampler, "DENSE_SHARE", 0.0)
    monkeypatch.setattr(sampler, "DENSE_CHUNK_COUNTERS", 100)
    assert gumbel_argmax(logits, noise).equal(dense)


def test_lowest_id_wins_a_tie():
    logits = torch.zeros((2, VOCAB))
    logits[:, [17, 44, 90]] = 5.0
    assert sample(
        logits, rows_of([(params(temperature=0), 0, [])] * 2, [0, 0])
    ).token_ids.tolist() == [17, 17]


def test_greedy_and_sampled_rows_do_not_mix():
    logits = logits_of(4)
    mixed = [(params(temperature=0), 0, []), (params(seed=5), 0, [])] * 2
    together = sample(logits, rows_of(mixed, [3, 3, 3, 3])).token_ids
    for row, request in enumerate(mixed):
        alone = sample(logits[row : row + 1], rows_of([request], [3])).token_ids
        assert together[row] == alone[0]
    assert together[0] == logits[0].argmax()


def test_same_seed_alone_and_among_31_others():
    logits = logits_of(32, vocab=2048)
    requests = [(params(seed=9 + i, top_p=0.9, top_k=i, min_p=0.01 * i), 0, []) for i in range(32)]
    together = sample(logits, rows_of(requests, range(32))).token_ids
    for row in range(32):
        alone = sample(logits[row : row + 1], rows_of([requests[row]], [row])).token_ids
        assert together[row] == alone[0]


def kept(logits, min_p=0.0, top_k=0, top_p=1.0):
    filtered = apply_filters(
        logits, np.array([min_p], np.float32), np.array([top_k]), np.array([top_p], np.float32)
    )
    return (filtered[0] > -math.inf).nonzero().flatten().tolist()


LADDER = torch.log(torch.tensor([[0.1, 0.4, 0.2, 0.05, 0.25]]))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": 1}, [1]),
        ({"top_k": 3}, [1, 2, 4]),
        ({"top_k": 5}, [0, 1, 2, 3, 4]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.01}, [1]),
        ({"top_p": 0.39}, [1]),
        ({"top_p": 0.6}, [1, 4]),
        ({"top_p": 0.7}, [1, 2, 4]),
        ({"top_p": 0.999}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.45}, [1, 2, 4]),
        ({"min_p": 1.0}, [1]),
        # min-p first: of 0.4 0.25 0.2 the two most likely hold 0.76, and top-p counts what is left.
        ({"min_p": 0.45, "top_k": 2, "top_p": 0.6}, [1]),
        ({"min_p": 0.45, "top_p": 0.7}, [1, 4]),
        ({"top_k": 2, "top_p": 0.62}, [1, 4]),
    ],
)
def test_filters(filters, expected):
    assert kept(LADDER, **filters) == expected


def test_top_p_beyond_the_sorted_candidates(monkeypatch):
    logits = logits_of(3, scale=0.1, vocab=4096)
    top_p = np.array([0.2, 0.9, 0.5], np.float32)
    nothing = np.zeros(3, np.float32), np.zeros(3, np.int64)
    few_sorted = apply_filters(logits, *nothing, top_p)
    monkeypatch.setattr("pagewire_worker.sampling.filters.SORTED_CANDIDATES", 4096)
    all_sorted = apply_filters(logits, *nothing, top_p)
    assert few_sorted.equal(all_sorted)
    mass = (logits.softmax(1) * (all_sorted > -math.inf)).sum(1)
    assert (mass >= torch.from_numpy(top_p)).all()
    assert (mass < torch.from_numpy(top_p) + 1e-3).all()


def test_tokens_equal_to_the_last_one_kept_are_kept():
    assert kept(torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]]), top_k=2) == [1, 2, 3]


def test_min_tokens_keeps_stop_tokens_away():
    logits = torch.zeros((3, VOCAB))
    logits[:, 7], logits[:, 9], logits[:, 11] = 50.0, 40.0, 30.0
    request = (params(temperature=0, min_tokens=3, stop_token_ids=(9,)), 0, [7])
    before = sample(logits, rows_of([request] * 3, [0, 2, 3]))
    assert before.token_ids.tolist() == [11, 11, 7]
    assert logits[0, 7] == 50.0


def test_an_end_token_that_the_vocabulary_lacks_bans_nothing():
    logits = torch.zeros((1, VOCAB))
    logits[:, 7], logits[:, 9] = 50.0, 40.0
    sampled = sample(logits, rows_of([(params(temperature=0, min_tokens=3), 0, [7, VOCAB])], [0]))
    assert sampled.token_ids.tolist() == [9]


def test_logprobs_are_of_the_raw_logits():
    logits = logits_of(3)
    requests = [
        (params(temperature=0.5, top_k=2, logprobs=4), 0, []),
        (params(temperature=0, logprobs=0), 0, []),
        (params(temperature=0), 0, []),
    ]
    sampled = sample(logits, rows_of(requests, [0, 0, 0]))
    expected = logits.log_softmax(1)
    chosen = expected.gather(1, sampled.token_ids.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(sampled.logprobs.logprobs, chosen)
    top = expected.topk(4, dim=1)
    torch.testing.assert_close(sampled.logprobs.top_logprobs, top.values)
    assert sampled.logprobs.top_ids.equal(top.indices)
    assert sampled.logprobs.ranks[1:].tolist() == [1, 1]


def test_no_logprobs_unless_asked_for():
    sampled = sample(logits_of(2), rows_of([(params(), 0, [])] * 2, [0, 0]))
    assert sampled.logprobs is None
