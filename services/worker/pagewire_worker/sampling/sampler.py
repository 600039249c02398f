"""Chooses tokens by formula: argmax(filtered logits + Gumbel noise). Keeps no generator.

The noise is a pure function of (seed, output position, choice, token id). The Gumbel-max trick
(Maddison et al., 2014) samples from the softmax exactly; greedy rows take the argmax. The lowest id
wins a tie.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.sampling.filters import apply_filters
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.sampling.logit_rules import apply_rules
from pagewire_worker.sampling.logprobs import token_logprobs
from pagewire_worker.sampling.philox import MAX_GUMBEL, gumbel, philox4x32
from pagewire_worker.sampling.row_maximum import argmax_of_rows
from pagewire_worker.sampling.sampling_table import NO_LOGPROBS, SamplingRows

PURPOSE_TOKEN = 0
"""Last word of the counter: the kind of the random decision."""

DENSE_SHARE = 1 / 8
"""Noise for a single token computes four words to use one, and gathering costs as much again. From
this share of the vocabulary on, noise for all tokens is cheaper."""

DENSE_CHUNK_COUNTERS = 16 * 1024
"""Counters computed at once: their intermediate words fit in a core's second-level cache."""

SUM_SLACK = 1e-2
"""Above any rounding error of logit + noise at the size of real logits."""


def logit_faults(logits: Tensor) -> Tensor:
    """Return the rows of `logits` [rows, vocab] that have a NaN or +inf, as [rows] bool."""
    return ~(logits.amax(dim=1) < float("inf"))


class ChooseRandom(Protocol):
    """Chooses tokens by noise."""

    def __call__(
        self, logits: Tensor, rows: SamplingRows, which: npt.NDArray[np.intp], likely: Tensor
    ) -> Tensor:
        """Return one token for each of the rows `which` of `logits` [rows, vocab]; `likely` [rows]
        are the most likely ones."""
        ...


def choose_by_torch(
    logits: Tensor, rows: SamplingRows, which: npt.NDArray[np.intp], likely: Tensor
) -> Tensor:
    """Return one token for each of the rows `which` of `logits` [rows, vocab]."""
    index = to_device(which, logits.device)
    temperature = to_device(rows.temperature[which], logits.device)
    filtered = apply_filters(
        logits.index_select(0, index) / temperature.unsqueeze(1),
        rows.min_p[which],
        rows.top_k[which],
        rows.top_p[which],
    )
    noise = TokenNoise(
        rows.seed_low[index], rows.seed_high[index], rows.position[index], rows.choice[index]
    )
    return gumbel_argmax(filtered, noise)


def sample(
    logits: Tensor,
    rows: SamplingRows,
    masks: GrammarBitmask | None = None,
    choose: ChooseRandom = choose_by_torch,
) -> SampledTokens:
    """Choose one token per row of `logits` [rows, vocab], float32. Does not change `logits`."""
    faults = logit_faults(logits)
    if faults.any():
        # The filters of a faulty row must not fail the whole step.
        logits = logits.masked_fill(faults.unsqueeze(1), 0.0)
    ruled = apply_rules(logits, rows, masks)
    token_ids = argmax_of_rows(ruled)
    random_rows = np.flatnonzero(rows.temperature > 0)
    if len(random_rows):
        chosen = choose(ruled, rows, random_rows, token_ids)
        token_ids = token_ids.index_copy(0, to_device(random_rows, logits.device), chosen)
    if (rows.num_logprobs == NO_LOGPROBS).all():
        return SampledTokens(token_ids, faults=faults)
    num_top = int(rows.num_logprobs.max())
    return SampledTokens(token_ids, token_logprobs(logits, token_ids, num_top), faults)


def likeliest(logits: Tensor) -> SampledTokens:
    """Return the most likely token of each row of [rows, vocab], the lowest id of equal ones."""
    token_ids = argmax_of_rows(logits)
    largest = logits.gather(1, token_ids.unsqueeze(1)).squeeze(1)
    return SampledTokens(token_ids, faults=~(largest < float("inf")))


@dataclass(frozen=True, slots=True)
class TokenNoise:
    """Gumbel noise of the tokens of some rows; every field is [rows] int64."""

    seed_low: Tensor
    seed_high: Tensor
    position: Tensor
    choice: Tensor

    def at(self, rows: Tensor, token_ids: Tensor) -> Tensor:
        """Return the noise of single tokens; `rows`, `token_ids` and the result are [n]."""
        counter = (
            self.position[rows],
            self.choice[rows],
            token_ids >> 2,
            torch.full_like(token_ids, PURPOSE_TOKEN),
        )
        words = philox4x32(counter, (self.seed_low[rows], self.seed_high[rows]))
        lane = (token_ids & 3).unsqueeze(0)
        return gumbel(torch.stack(words).gather(0, lane).squeeze(0))

    def dense(self, vocab_size: int) -> Tensor:
        """Return the noise of all tokens, [rows, vocab_size]."""
        num_rows, num_counters = len(self.position), -(-vocab_size // 4)
        noise = torch.empty(
            (num_rows, num_counters * 4), dtype=torch.float32, device=self.position.device
        )
        width = max(1, DENSE_CHUNK_COUNTERS // num_rows)
        for begin in range(0, num_counters, width):
            end = min(begin + width, num_counters)
            noise[:, begin * 4 : end * 4] = self._range(begin, end)
        return noise[:, :vocab_size]

    def _range(self, begin: int, end: int) -> Tensor:
        """Return the noise of tokens 4 * begin to 4 * end, [rows, 4 * (end - begin)]."""
        groups = torch.arange(begin, end, device=self.position.device).unsqueeze(0)
        counter = (
            self.position.unsqueeze(1),
            self.choice.unsqueeze(1),
            groups,
            torch.full_like(groups, PURPOSE_TOKEN),
        )
        words = philox4x32(counter, (self.seed_low.unsqueeze(1), self.seed_high.unsqueeze(1)))
        return gumbel(torch.stack(torch.broadcast_tensors(*words), dim=-1)).flatten(1)


def gumbel_argmax(logits: Tensor, noise: TokenNoise) -> Tensor:
    """Return argmax(logits + noise) per row of [rows, vocab], with noise only where it can matter.

    Noise is bounded, so a token further below the best sum than the largest noise cannot win. The
    sum of the most likely token is a lower bound of the best one.
    """
    likely = argmax_of_rows(logits)
    largest = logits.gather(1, likely.unsqueeze(1)).squeeze(1)
    bound = largest + noise.at(torch.arange(len(logits), device=logits.device), likely)
    is_candidate = logits >= (bound - (MAX_GUMBEL + SUM_SLACK)).unsqueeze(1)
    # A filtered token stays out, even if all sums are far apart.
    is_candidate &= logits > float("-inf")
    rows, token_ids = is_candidate.nonzero(as_tuple=True)
    if len(rows) > DENSE_SHARE * logits.numel():
        return argmax_of_rows(logits + noise.dense(logits.shape[1]))
    sums = torch.full_like(logits, float("-inf"))
    sums[rows, token_ids] = logits[rows, token_ids] + noise.at(rows, token_ids)
    return argmax_of_rows(sums)
