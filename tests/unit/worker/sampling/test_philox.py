"""Known answers of the generator: words and uniforms bit for bit, noise within 4 ulp."""

import math
import random

import numpy as np
import pytest
import torch

from pagewire_worker.sampling.philox import MAX_GUMBEL, gumbel, philox4x32, uniform

# Vectors of Random123 (Salmon et al., 2011), philox4x32-10: counter, key, words.
VECTORS = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words_of(text):
    return [int(word, 16) for word in text.split()]


def philox_in_python(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (p1 >> 32) ^ c1 ^ k0,
            p1 & 0xFFFFFFFF,
            (p0 >> 32) ^ c3 ^ k1,
            p0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def run(counter, key):
    words = philox4x32([torch.tensor(c) for c in counter], [torch.tensor(k) for k in key])
    return [int(word) for word in words]


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_random123_vectors(counter, key, words):
    assert run(words_of(counter), words_of(key)) == words_of(words)


def test_equals_arithmetic_on_python_integers():
    generator = random.Random(3)
    for _ in range(200):
        counter = [generator.getrandbits(32) for _ in range(4)]
        key = [generator.getrandbits(32) for _ in range(2)]
        assert run(counter, key) == philox_in_python(counter, key)


@pytest.mark.parametrize(
    ("word", "bits"),
    [
        (0x00000000, 0x33800000),  # 0.5 * 2**-23
        (0x000001FF, 0x33800000),  # the low nine bits are dropped
        (0x00000200, 0x34400000),  # 1.5 * 2**-23
        (0x80000000, 0x3F000001),  # just above one half
        (0xFFFFFFFF, 0x3F7FFFFF),  # the largest float32 below 1
    ],
)
def test_uniform_bit_for_bit(word, bits):
    value = uniform(torch.tensor([word], dtype=torch.int64))
    assert value.dtype == torch.float32
    assert int(value.view(torch.int32)[0]) == bits


def test_uniform_is_exact_everywhere():
    words = torch.randint(0, 2**32, (10_000,), dtype=torch.int64)
    exact = [((word >> 9) + 0.5) * 2.0**-23 for word in words.tolist()]
    assert uniform(words).tolist() == exact


def test_gumbel_within_four_ulp():
    words = torch.randint(0, 2**32, (20_000,), dtype=torch.int64)
    words = torch.cat((words, torch.tensor([0, 0xFFFFFFFF, 0x80000000])))
    noise = gumbel(words).numpy()
    exact = np.array([-math.log(-math.log(u)) for u in uniform(words).tolist()])
    ulp = np.spacing(np.abs(exact).astype(np.float32))
    assert (np.abs(noise.astype(np.float64) - exact) <= 4 * ulp).all()


def test_noise_is_bounded():
    extremes = gumbel(torch.tensor([0, 0xFFFFFFFF], dtype=torch.int64)).tolist()
    assert extremes[0] == pytest.approx(-2.8116, abs=1e-3)
    assert MAX_GUMBEL - 1e-3 < extremes[1] < MAX_GUMBEL
