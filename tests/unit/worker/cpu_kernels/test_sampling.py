"""Sampling by the kernels: the noise of every word, and the tokens of torch's ops, bit for bit."""

import numpy as np
import pytest
import torch

from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import NewSequence
from pagewire_worker.cpu_kernels.sampler import KernelFilters, KernelSampler
from pagewire_worker.sampling.philox import gumbel
from pagewire_worker.sampling.sampler import sample
from pagewire_worker.sampling.sampling_table import SamplingRows, SamplingTable
from support.kernels.fused_kernels import pools

BRIEF_ERROR = 1e-5
"""Of kernels/sampling/noise.h."""

SETTINGS = (
    {"temperature": 1.0},
    {"temperature": 0.0},
    {"temperature": 0.3, "top_p": 0.9},
    {"temperature": 2.0, "top_p": 0.999},
    {"temperature": 0.7, "top_k": 7},
    {"temperature": 0.7, "top_k": 2000, "top_p": 0.6},
    {"temperature": 1.3, "min_p": 0.02},
    {"temperature": 0.9, "min_p": 0.001, "top_k": 40, "top_p": 0.95},
)


def rows_of(settings: list[dict[str, float]], seed: int) -> SamplingRows:
    """Return rows with seeds of 64 bits, and various positions and choices."""
    numbers = np.random.default_rng(seed)
    table = SamplingTable(len(settings), torch.device("cpu"))
    for slot, fields in enumerate(settings):
        params = SamplingParams(
            max_tokens=None, seed=int(numbers.integers(2**64, dtype=np.uint64)), **fields
        )
        table.set(
            NewSequence(
                slot=slot,
                request_id=b"r",
                choice=int(numbers.integers(8)),
                prompt_token_ids=[1],
                emitted_token_ids=[],
                sampling=params,
                block_ids=[],
            )
        )
    return table.rows(np.arange(len(settings)), numbers.integers(2**20, size=len(settings)))


@pytest.mark.parametrize("pool", pools(2))
def test_the_noise_of_every_word(pool):
    # The lower 9 bits of a word do not count.
    words = torch.arange(2**23, dtype=torch.int64) << 9
    expected = gumbel(words)
    words = (words + 0x1A5).to(torch.uint32)
    exact, brief = (torch.empty(len(words)) for _ in range(2))
    pool.noise(words.data_ptr(), len(words), exact.data_ptr(), brief.data_ptr())
    assert torch.equal(exact, expected)
    assert (brief - expected).abs().max() < BRIEF_ERROR


@pytest.mark.parametrize("pool", pools(1, 3))
@pytest.mark.parametrize("vocab_size", [1, 3, 64, 203, 5000])
def test_tokens_are_those_of_torch(pool, vocab_size):
    generator = torch.Generator().manual_seed(vocab_size)
    kernels = KernelSampler(pool)
    for seed, scale in enumerate((0.0, 0.1, 1.0, 4.0, 30.0)):
        # Rows of the kernels' logits have further columns, which count for nothing.
        wide = torch.randn((len(SETTINGS) + 2, vocab_size + 13), generator=generator) * scale
        wide[:, vocab_size:] = 1e9
        logits = wide[:, :vocab_size]
        logits[-2] = torch.where(logits[-2] < 0.5, float("-inf"), logits[-2])
        logits[-1] = logits[-1].round()
        rows = rows_of([*SETTINGS, SETTINGS[0], SETTINGS[3]], seed)
        expected, found = sample(logits, rows), kernels(logits, rows)
        assert torch.equal(found.token_ids, expected.token_ids)
        assert torch.equal(found.faults, expected.faults)


@pytest.mark.parametrize("pool", pools(2))
def test_one_row_is_shared_by_threads(pool):
    logits = torch.randn((1, 40_000), generator=torch.Generator().manual_seed(3))
    kernels = KernelSampler(pool)
    for seed in range(20):
        rows = rows_of([{"temperature": 1.0}], seed)
        assert torch.equal(kernels(logits, rows).token_ids, sample(logits, rows).token_ids)


@pytest.mark.parametrize("pool", pools(1, 2))
def test_the_largest_values_of_rows(pool):
    values = torch.randn((5, 20_011), generator=torch.Generator().manual_seed(1))
    values[1] = values[1].round()
    values[2, 1:] = float("-inf")
    values[3] = -values[3].abs()
    values[4] = 0.0
    filters = KernelFilters(pool)
    for count in (1, 50, 20_011):
        expected = torch.topk(values[:, :20_000], min(count, 20_000), dim=1).values
        assert torch.equal(filters.largest(values[:, :20_000], expected.shape[1]), expected)


@pytest.mark.parametrize("pool", pools(1))
def test_a_row_with_a_nan_disturbs_no_other(pool):
    logits = torch.randn((3, 300), generator=torch.Generator().manual_seed(5))
    rows = rows_of([{"temperature": 1.0, "top_p": 0.9}] * 3, 0)
    expected = KernelSampler(pool)(logits, rows).token_ids
    logits[1, 7] = float("nan")
    found = KernelSampler(pool)(logits, rows)
    assert found.faults.tolist() == [False, True, False]
    assert found.token_ids[[0, 2]].tolist() == expected[[0, 2]].tolist()
