"""Chooses one token per row: argmax(logits / temperature + Gumbel noise), or argmax of the logits.

Uses the Gumbel-max trick (Maddison et al., 2014), like `sampling.sampler`. A row is cut into
splits, so that a single row uses the whole device. A second kernel takes the best of the splits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.gumbel_noise import gumbel, token_words, uniform

_SPLIT = 2048


def sample_tokens(
    logits: Tensor,
    temperature: Tensor,
    seed_low: Tensor,
    seed_high: Tensor,
    position: Tensor,
    choice: Tensor,
    threshold: Tensor | None = None,
    split: int = _SPLIT,
    faults: Tensor | None = None,
) -> Tensor:
    """Return one token id per row, [rows] int64. The lowest id wins a tie.

    Ids are valid tokens, also in rows with NaN, where they mean nothing.

    Args:
        logits: [rows, vocab] float32; rows may lie apart. -inf never wins unless all are -inf,
            which gives id 0.
        temperature: [rows] float32; rows where it is 0 take the most likely token.
        seed_low, seed_high, position, choice: [rows] int64, see `TokenNoise`.
        threshold: [rows] float32 from `filter_thresholds`: tokens whose logits / temperature is
            less are dropped. Greedy rows ignore it.
        split: Tokens of one program, a power of two and at least 4; changes no outcome.
        faults: [rows] int64, set to 1 if a logit is NaN or +inf, else to 0.
    """
    rows = (temperature, threshold, seed_low, seed_high, position, choice)
    for column in rows:
        assert column is None or (column.shape == logits.shape[:1] and column.is_contiguous())
    return _launch(logits, rows, split, faults)


def greedy_tokens(logits: Tensor, split: int = _SPLIT, faults: Tensor | None = None) -> Tensor:
    """Return the most likely token per row, like `sample_tokens` at temperature 0.

    `logits` may have any floating type.
    """
    return _launch(logits, (None,) * 6, split, faults)


def _launch(
    logits: Tensor, rows: tuple[Tensor | None, ...], split: int, faults: Tensor | None
) -> Tensor:
    assert logits.dtype == torch.float32 or rows[0] is None
    assert logits.stride(1) == 1
    num_rows, vocab_size = logits.shape
    num_splits = triton.cdiv(vocab_size, split)
    sums = torch.empty((num_rows, num_splits), dtype=torch.float32, device=logits.device)
    split_ids = torch.empty((num_rows, num_splits), dtype=torch.int32, device=logits.device)
    token_ids = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    _best_of_split[(num_rows, num_splits)](
        logits, *rows, sums, split_ids, logits.stride(0), vocab_size, SPLIT=split
    )
    width = triton.next_power_of_2(num_splits)
    _best_of_row[(num_rows,)](
        sums, split_ids, token_ids, faults, num_splits, vocab_size, WIDTH=width
    )
    return token_ids


@triton.jit
def _best_of_split(
    logits,
    temperature,
    threshold,
    seed_low,
    seed_high,
    position,
    choice,
    sums,
    split_ids,
    logits_stride,
    vocab_size,
    SPLIT: tl.constexpr,
):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * SPLIT
    token_ids = first + tl.arange(0, SPLIT)
    is_inside = token_ids < vocab_size
    places = logits + row * logits_stride + token_ids
    values = tl.load(places, mask=is_inside, other=float("-inf")).to(tl.float32)
    # Checked before a rule or a filter drops the value: a maximum on the device ignores NaN.
    is_broken = tl.max((~(values < float("inf"))).to(tl.int32), axis=0) > 0
    if temperature is None:
        best, best_id = _best(values, token_ids)
    else:
        heat = tl.load(temperature + row)
        if heat > 0:
            # As torch divides: `/` may round differently here.
            values = tl.div_rn(values, heat)
            if threshold is not None:
                values = tl.where(values >= tl.load(threshold + row), values, float("-inf"))
            words = token_words(seed_low, seed_high, position, choice, row, first, SPLIT)
            best, best_id = _best_sum(values, words, token_ids, first)
        else:
            best, best_id = _best(values, token_ids)
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(sums + place, tl.where(is_broken, float("nan"), best))
    tl.store(split_ids + place, best_id)


@triton.jit
def _best_sum(values, words, token_ids, first):
    """Return the largest of values + noise and its id; -inf and `first` if all are -inf.

    Logs in float64 are slow on devices with few units for them. So float32 noise finds the tokens
    that can win at all, most often one, and only these get the exact noise.
    """
    guesses = values - tl.log(-tl.log(uniform(words)))
    best_guess = tl.max(guesses, axis=0)
    # Far above the error of the guessed noise, and of the rounding of sums of this size.
    slack = 0.0009765625 + tl.abs(best_guess) * 9.5367431640625e-07
    is_candidate = (guesses >= best_guess - slack) & (values > float("-inf"))
    best = best_guess - float("inf")
    best_id = first
    for _ in range(tl.sum(is_candidate.to(tl.int32), axis=0)):
        token_id = tl.min(tl.where(is_candidate, token_ids, 0x7FFFFFFF), axis=0)
        is_it = token_ids == token_id
        word = tl.max(tl.where(is_it, words, 0), axis=0)
        value = tl.max(tl.where(is_it, values, float("-inf")), axis=0)
        exact = value + gumbel(word)
        # Ids rise, so an equal sum of a later one does not win.
        best_id = tl.where(exact > best, token_id, best_id)
        best = tl.maximum(exact, best)
        is_candidate = is_candidate & (token_ids > token_id)
    return best, best_id


@triton.jit
def _best(values, token_ids):
    """Return the largest value and the lowest id that has it."""
    best = tl.max(values, axis=0)
    return best, tl.min(tl.where(values == best, token_ids, 0x7FFFFFFF), axis=0)


@triton.jit
def _best_of_row(sums, split_ids, token_ids, faults, num_splits, vocab_size, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    splits = tl.arange(0, WIDTH)
    is_inside = splits < num_splits
    best_sums = tl.load(sums + row * num_splits + splits, mask=is_inside, other=float("-inf"))
    best_ids = tl.load(split_ids + row * num_splits + splits, mask=is_inside, other=0x7FFFFFFF)
    _, best_id = _best(best_sums, best_ids)
    # In a row of NaN no id is the best.
    tl.store(token_ids + row, tl.minimum(best_id, vocab_size - 1).to(tl.int64))
    if faults is not None:
        is_broken = tl.max((best_sums != best_sums).to(tl.int32), axis=0)
        tl.store(faults + row, is_broken.to(tl.int64))
