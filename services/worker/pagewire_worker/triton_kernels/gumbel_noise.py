"""Computes Gumbel noise of tokens, a function of (seed, output position, choice, token id) only.

Philox4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3"), with the formula
of `pagewire_worker.sampling.philox`. Words and uniforms have the same bits on every device.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def gumbel_noise(
    seed_low: Tensor,
    seed_high: Tensor,
    position: Tensor,
    choice: Tensor,
    vocab_size: int,
    block: int = _BLOCK,
) -> Tensor:
    """Return the noise of every token of some rows, [rows, vocab_size] float32.

    Args:
        seed_low, seed_high: [rows] int64, halves of the 64-bit seeds.
        position: [rows] int64, index of the token in the output of its choice.
        choice: [rows] int64.
        block: Tokens of one program, a power of two and at least 4.
    """
    rows = (seed_low, seed_high, position, choice)
    num_rows = len(position)
    assert all(column.shape == (num_rows,) and column.is_contiguous() for column in rows)
    noise = torch.empty((num_rows, vocab_size), dtype=torch.float32, device=position.device)
    grid = (num_rows, triton.cdiv(vocab_size, block))
    _gumbel_noise[grid](*rows, noise, vocab_size, BLOCK=block)
    return noise


@triton.jit
def _gumbel_noise(seed_low, seed_high, position, choice, noise, vocab_size, BLOCK: tl.constexpr):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    words = token_words(seed_low, seed_high, position, choice, row, first, BLOCK)
    token_ids = first + tl.arange(0, BLOCK)
    tl.store(noise + row * vocab_size + token_ids, gumbel(words), mask=token_ids < vocab_size)


@triton.jit
def token_words(
    seed_low, seed_high, position, choice, row, first, BLOCK: tl.constexpr
) -> tl.tensor:
    """Return the random words of tokens `first` to `first` + BLOCK of a row, [BLOCK] uint32.

    `first` is a multiple of 4; the columns are pointers to [rows] int64. Four tokens share a
    counter, which is computed once.
    """
    groups = (first // 4 + tl.arange(0, BLOCK // 4)).to(tl.uint32)
    word0, word1, word2, word3 = philox4x32(
        tl.load(position + row).to(tl.uint32),
        tl.load(choice + row).to(tl.uint32),
        groups,
        tl.zeros_like(groups),
        tl.load(seed_low + row).to(tl.uint32),
        tl.load(seed_high + row).to(tl.uint32),
    )
    return tl.interleave(tl.interleave(word0, word2), tl.interleave(word1, word3))


@triton.jit
def philox4x32(c0, c1, c2, c3, k0, k1) -> tuple[tl.tensor, ...]:
    """Return four random words of a counter and a key, all uint32: Philox4x32-10."""
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high1, low1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def uniform(words) -> tl.tensor:
    """Return ((x >> 9) + 0.5) * 2**-23, exact in float32 and never 0 or 1."""
    return ((words >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def gumbel(words) -> tl.tensor:
    """Return -log(-log(u)) in float64, rounded to float32."""
    return (-tl.log(-tl.log(uniform(words).to(tl.float64)))).to(tl.float32)
