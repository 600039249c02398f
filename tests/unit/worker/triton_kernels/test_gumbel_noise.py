"""Words and uniforms bit for bit, noise within 4 units in the last place of the law's."""

import math

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from unit.worker.sampling.test_philox import VECTORS, words_of

from pagewire_worker.sampling import philox
from pagewire_worker.triton_kernels.gumbel_noise import gumbel, gumbel_noise, philox4x32, uniform
from support.oracles.kernels import gumbel_noise_oracle


@triton.jit
def _words(counters, keys, words, NUM: tl.constexpr):
    which = tl.arange(0, NUM)
    word0, word1, word2, word3 = philox4x32(
        tl.load(counters + which).to(tl.uint32),
        tl.load(counters + NUM + which).to(tl.uint32),
        tl.load(counters + 2 * NUM + which).to(tl.uint32),
        tl.load(counters + 3 * NUM + which).to(tl.uint32),
        tl.load(keys + which).to(tl.uint32),
        tl.load(keys + NUM + which).to(tl.uint32),
    )
    tl.store(words + which, word0.to(tl.int64))
    tl.store(words + NUM + which, word1.to(tl.int64))
    tl.store(words + 2 * NUM + which, word2.to(tl.int64))
    tl.store(words + 3 * NUM + which, word3.to(tl.int64))


@triton.jit
def _noise_of_words(words, uniforms, noise, NUM: tl.constexpr):
    which = tl.arange(0, NUM)
    word = tl.load(words + which).to(tl.uint32)
    tl.store(uniforms + which, uniform(word))
    tl.store(noise + which, gumbel(word))


def words_of_kernel(counters, keys):
    words = torch.empty_like(counters)
    _words[(1,)](counters, keys, words, NUM=counters.shape[1])
    return words


def noise_of_kernel(words):
    uniforms, noise = torch.empty(len(words)), torch.empty(len(words))
    _noise_of_words[(1,)](words, uniforms, noise, NUM=len(words))
    return uniforms, noise


def random_rows(num_rows):
    """Halves of seeds, positions and choices that use all 32 bits."""
    return tuple(torch.randint(0, 2**32, (num_rows,)) for _ in range(4))


def assert_within_four_ulp(noise, expected):
    ulp = np.spacing(expected.abs().numpy())
    assert (np.abs(noise.double().numpy() - expected.double().numpy()) <= 4 * ulp).all()


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_random123_vectors(counter, key, words):
    counters = torch.tensor(words_of(counter)).unsqueeze(1)
    keys = torch.tensor(words_of(key)).unsqueeze(1)
    assert words_of_kernel(counters, keys).squeeze(1).tolist() == words_of(words)


def test_words_equal_the_law(dice):
    counters, keys = torch.randint(0, 2**32, (4, 1024)), torch.randint(0, 2**32, (2, 1024))
    expected = torch.stack(philox.philox4x32(counters.unbind(), keys.unbind()))
    assert torch.equal(words_of_kernel(counters, keys), expected)


def test_uniforms_equal_the_law_bit_for_bit(dice):
    words = torch.randint(0, 2**32, (1024,))
    words[:5] = torch.tensor([0, 0x1FF, 0x200, 0x80000000, 0xFFFFFFFF])
    uniforms, _ = noise_of_kernel(words)
    assert torch.equal(uniforms.view(torch.int32), philox.uniform(words).view(torch.int32))


def test_noise_of_a_word_equals_the_law(dice):
    words = torch.randint(0, 2**32, (1024,))
    _, noise = noise_of_kernel(words)
    assert_within_four_ulp(noise, philox.gumbel(words))


def test_extreme_words_have_finite_noise():
    _, noise = noise_of_kernel(torch.tensor([0, 0xFFFFFFFF]))
    smallest, largest = (-math.log(-math.log(u)) for u in (2.0**-24, 1 - 2.0**-24))
    torch.testing.assert_close(noise, torch.tensor([smallest, largest]))
    assert noise[1] < philox.MAX_GUMBEL


@pytest.mark.parametrize("seed", range(40))
def test_noise_of_rows_equals_the_law(seed, dice):
    vocab_size, block = dice.randint(5, 700), dice.choice([256, 512, 1024])
    rows = random_rows(dice.randint(1, 3))
    noise = gumbel_noise(*rows, vocab_size, block=block)
    assert noise.shape == (len(rows[0]), vocab_size)
    assert_within_four_ulp(noise, gumbel_noise_oracle(*rows, vocab_size))


@pytest.mark.parametrize("block", [4, 16, 64])
def test_the_block_changes_no_bit(block, dice):
    rows = random_rows(1)
    assert torch.equal(gumbel_noise(*rows, 50, block=block), gumbel_noise(*rows, 50))


def test_a_row_alone_has_the_bits_it_has_in_a_batch(dice):
    rows = random_rows(5)
    alone = gumbel_noise(*(column[3:4] for column in rows), 77)
    assert torch.equal(gumbel_noise(*rows, 77)[3:4], alone)


@pytest.mark.parametrize("column", range(4), ids=["seed_low", "seed_high", "position", "choice"])
def test_every_column_changes_the_noise(column, dice):
    rows = random_rows(1)
    other = [values.clone() for values in rows]
    other[column] ^= 1
    changed = gumbel_noise(*rows, 32) != gumbel_noise(*other, 32)
    assert changed.sum() >= 30
