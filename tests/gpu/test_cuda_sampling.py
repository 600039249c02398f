"""The law of sampling on a CUDA device: words and uniforms bit for bit, noise within 4 units in the
last place, tokens wherever the two best sums are not next to each other."""

import random

import pytest
import torch
from unit.worker.sampling.test_philox import VECTORS, words_of
from unit.worker.triton_kernels.test_gumbel_noise import (
    _noise_of_words,
    _words,
    assert_within_four_ulp,
)

from pagewire_worker.cuda.sampler import sample as sample_on_cuda
from pagewire_worker.sampling import philox
from pagewire_worker.sampling.sampler import TokenNoise, sample
from pagewire_worker.triton_kernels.gumbel_noise import gumbel_noise
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
CUDA = torch.device("cuda")
VOCAB_SIZE = 151_936
CLOSE = 1e-4


def on_cuda(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.to(CUDA) for tensor in tensors)


def noise_rows(num_rows: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randint(0, 2**32, (num_rows,)) for _ in range(4))


def test_words_and_uniforms_are_those_of_the_law_bit_for_bit() -> None:
    counters, keys = torch.randint(0, 2**32, (4, 1024)), torch.randint(0, 2**32, (2, 1024))
    for number, (counter, key, _) in enumerate(VECTORS):
        counters[:, number] = torch.tensor(words_of(counter))
        keys[:, number] = torch.tensor(words_of(key))
    words = torch.empty_like(counters, device=CUDA)
    _words[(1,)](*on_cuda(counters, keys), words, NUM=1024)
    expected = torch.stack(philox.philox4x32(counters.unbind(), keys.unbind()))
    assert torch.equal(words.cpu(), expected)
    for number, (_, _, known) in enumerate(VECTORS):
        assert words[:, number].tolist() == words_of(known)
    uniforms, noise = torch.empty((2, 1024), dtype=torch.float32, device=CUDA)
    _noise_of_words[(1,)](words[0].contiguous(), uniforms, noise, NUM=1024)
    law = philox.uniform(expected[0])
    assert torch.equal(uniforms.cpu().view(torch.int32), law.view(torch.int32))
    assert_within_four_ulp(noise.cpu(), philox.gumbel(expected[0]))


def test_noise_of_a_vocabulary() -> None:
    rows = noise_rows(3)
    found = gumbel_noise(*on_cuda(*rows), VOCAB_SIZE)
    assert_within_four_ulp(found.cpu(), TokenNoise(*rows).dense(VOCAB_SIZE))


@pytest.mark.parametrize("seed", range(10))
def test_tokens_of_whole_vocabularies(seed: int) -> None:
    dice = random.Random(seed)
    torch.manual_seed(seed)
    logits = torch.randn(8, VOCAB_SIZE) * dice.choice([0.5, 2.0, 6.0])
    rows = noise_rows(8)
    temperature = torch.tensor([dice.choice([0.0, 0.5, 1.0, 1.5]) for _ in range(8)])
    found = sample_tokens(*on_cuda(logits, temperature, *rows)).cpu()
    heat = temperature.masked_fill(temperature == 0, 1.0).unsqueeze(1)
    noise = TokenNoise(*rows).dense(VOCAB_SIZE) * (temperature > 0).unsqueeze(1)
    best = (logits / heat + noise).topk(2, dim=1)
    is_clear = best.values[:, 0] - best.values[:, 1] > CLOSE
    assert is_clear.any()
    assert torch.equal(found[is_clear], best.indices[:, 0][is_clear])


def test_the_lowest_of_equal_tokens_is_taken() -> None:
    logits = torch.zeros(4, VOCAB_SIZE, device=CUDA)
    logits[1, 70_000:70_010] = 1.0
    assert greedy_tokens(logits).tolist() == [0, 70_000, 0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_filters_keep_what_the_sampler_of_cpus_keeps(seed: int) -> None:
    from unit.worker.sampling.test_sampler import params, rows_of

    dice = random.Random(seed)
    torch.manual_seed(seed)
    requests = [
        (params(seed=row, temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p), row, [])
        for row, (top_k, top_p, min_p) in enumerate(
            [(0, 0.9, 0.0), (20, 1.0, 0.0), (0, 1.0, 0.05), (50, 0.5, 0.01)]
        )
    ]
    logits = torch.randn(4, 32_000) * dice.choice([1.0, 4.0])
    rows = rows_of(requests, [0] * 4)
    expected = sample(logits, rows).token_ids
    there = rows_of(requests, [0] * 4, CUDA)
    found = sample_on_cuda(logits.to(CUDA), there).token_ids.cpu()
    # A sum of probabilities next to top_p may fall to either side.
    assert (found == expected).sum() >= 3
