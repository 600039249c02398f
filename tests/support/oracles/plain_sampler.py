"""The whole way from logits to a token, one row at a time, in plain loops over numbers.

Written from the formulas in docs/decoding/sampling.md; shares nothing with the worker. Logits are
float32 after every operation, as on the worker, probabilities and noise are Python floats.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pagewire_shared.sampling.params import SamplingParams

F32 = np.float32
NEVER = -math.inf


@dataclass(frozen=True)
class PlainRow:
    """All that the choice of one token depends on."""

    logits: Sequence[float]
    sampling: SamplingParams
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    choice: int = 0
    eos: Collection[int] = ()
    mask: Collection[int] | None = None


@dataclass(frozen=True)
class PlainToken:
    """The token and what is reported of it."""

    token_id: int
    logprob: float
    rank: int
    top: Mapping[int, float] = field(default_factory=dict)


def noise_of(seed: int, position: int, choice: int, token: int) -> float:
    """Return the Gumbel noise of one token: Philox4x32-10 on Python integers."""
    c0, c1, c2, c3 = position, choice, token // 4, 0
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (
            (p1 >> 32) ^ c1 ^ k0,
            p1 & 0xFFFFFFFF,
            (p0 >> 32) ^ c3 ^ k1,
            p0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    uniform = (((c0, c1, c2, c3)[token % 4] >> 9) + 0.5) * 2.0**-23
    return -math.log(-math.log(uniform))


def softmax(logits: Sequence[float]) -> list[float]:
    """Return probabilities; what is excluded has none."""
    largest = max(map(float, logits))
    weights = [math.exp(float(value) - largest) for value in logits]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def without(logits: list[float], excluded: Collection[int]) -> list[float]:
    """Return logits without some tokens; unchanged where nothing would be left."""
    rest = [NEVER if token in excluded else value for token, value in enumerate(logits)]
    return logits if all(value == NEVER for value in rest) else rest


def completions(sequences: Sequence[Sequence[int]], output: Sequence[int]) -> set[int]:
    """Return the ids that would complete one of the sequences behind the output."""
    banned = set()
    for sequence in sequences:
        *before, last = sequence
        if not before or list(output[-len(before) :]) == before:
            banned.add(last)
    return banned


def ruled(row: PlainRow) -> list[float]:
    """Return the logits after masks, exclusions, bias and penalties."""
    sampling, vocab = row.sampling, range(len(row.logits))
    logits = [F32(value) for value in row.logits]
    if row.mask is not None:
        logits = [value if token in row.mask else NEVER for token, value in enumerate(logits)]
    if sampling.allowed_token_ids:
        logits = without(logits, set(vocab) - set(sampling.allowed_token_ids))
    logits = without(logits, completions(sampling.bad_token_sequences, row.output))
    if len(row.output) < sampling.min_tokens:
        logits = without(logits, {*row.eos, *sampling.stop_token_ids})
    for token, bias in sampling.logit_bias.items():
        logits[token] = F32(logits[token] + F32(bias))
    for token in vocab:
        value, times = logits[token], list(row.output).count(token)
        if token in row.prompt or times:
            penalty = F32(sampling.repetition_penalty)
            value = F32(value / penalty if value > 0 else value * penalty)
        value = F32(value - F32(F32(sampling.frequency_penalty) * F32(times)))
        if times:
            value = F32(value - F32(sampling.presence_penalty))
        logits[token] = value
    return logits


def filtered(logits: Sequence[float], sampling: SamplingParams) -> list[float]:
    """Return logits divided by the temperature, after min-p, top-k and top-p."""
    logits = [F32(value / F32(sampling.temperature)) for value in logits]
    if sampling.min_p > 0:
        chances = softmax(logits)
        least = sampling.min_p * max(chances)
        # A chance that is the largest one divides to exactly 1.
        pairs = zip(logits, chances, strict=True)
        logits = [v if chance >= least * (1 - 1e-9) else NEVER for v, chance in pairs]
    if 0 < sampling.top_k < len(logits):
        least = sorted(logits, reverse=True)[sampling.top_k - 1]
        logits = [value if value >= least else NEVER for value in logits]
    if sampling.top_p < 1:
        reached, least = 0.0, math.inf
        for chance, value in sorted(zip(softmax(logits), logits, strict=True), reverse=True):
            if reached >= sampling.top_p or value == NEVER:
                break
            reached, least = reached + chance, value
        logits = [value if value >= least else NEVER for value in logits]
    return logits


def chances_of(row: PlainRow) -> list[float]:
    """Return how likely each token is to be chosen, over all seeds."""
    return softmax(filtered(ruled(row), row.sampling))


def choose(row: PlainRow) -> PlainToken:
    """Return the token chosen; the lowest id wins a tie."""
    sums = logits = ruled(row)
    if row.sampling.temperature > 0:
        seed = row.sampling.seed or 0
        sums = [
            value + noise_of(seed, len(row.output), row.choice, token) if value > NEVER else NEVER
            for token, value in enumerate(filtered(logits, row.sampling))
        ]
    token_id = max(range(len(sums)), key=lambda token: (sums[token], -token))
    raw = [math.log(chance) if chance else NEVER for chance in softmax(row.logits)]
    rank = sum(value >= row.logits[token_id] for value in row.logits)
    best = sorted(range(len(raw)), key=lambda token: -row.logits[token])
    top = {token: raw[token] for token in best[: row.sampling.logprobs or 0]}
    return PlainToken(token_id, raw[token_id], rank, top)
