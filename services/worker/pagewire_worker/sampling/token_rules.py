"""Token rules on the device: allowed, banned and biased tokens, per slot and per row of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.sampling.params import SamplingParams
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.sampling.token_history import TokenHistory


@dataclass(frozen=True, slots=True)
class BadSequences:
    """Token sequences that the output must not contain.

    Attributes:
        last: [sequences] last id of each sequence: the id that is banned.
        prefix_tokens: [elements] the ids before the last one, of all sequences.
        prefix_owners: [elements] index of the sequence of each id.
        prefix_distances: [elements] distance of each id to the token to be sampled, from 1.
    """

    last: Tensor
    prefix_tokens: Tensor
    prefix_owners: Tensor
    prefix_distances: Tensor


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Token rules of one request; None for a rule that it does not have.

    Attributes:
        allowed: [n] int64, the only tokens allowed.
        bad: Sequences that the output must not contain.
        bias: ([n] int64, [n] float32), token ids and the values added to their logits.
    """

    allowed: Tensor | None
    bad: BadSequences | None
    bias: tuple[Tensor, Tensor] | None


@dataclass(frozen=True, slots=True)
class RowRules:
    """The rules of the rows of a step that have any, as (row, rules)."""

    by_row: tuple[tuple[int, TokenRules], ...] = ()

    def allowed(self) -> "Iterator[tuple[int, Tensor]]":
        """Yield the rows that allow only some tokens, with these tokens."""
        return ((row, one.allowed) for row, one in self.by_row if one.allowed is not None)

    def bad(self) -> "Iterator[tuple[int, BadSequences]]":
        """Yield the rows that have bad sequences, with the sequences."""
        return ((row, one.bad) for row, one in self.by_row if one.bad is not None)

    def bias(self) -> "Iterator[tuple[int, tuple[Tensor, Tensor]]]":
        """Yield the rows that have biases, with the biases."""
        return ((row, one.bias) for row, one in self.by_row if one.bias is not None)


def largest_token_id(sampling: SamplingParams) -> tuple[str, int]:
    """Return the rule with the largest token id, and the id; -1 without any."""
    ids = {
        "logit_bias": sampling.logit_bias,
        "allowed_token_ids": sampling.allowed_token_ids,
        "bad_token_sequences": [one for each in sampling.bad_token_sequences for one in each],
    }
    largest = {name: max(values, default=-1) for name, values in ids.items()}
    name = max(largest, key=lambda name: largest[name])
    return name, largest[name]


def make_rules(sampling: SamplingParams, device: torch.device) -> TokenRules | None:
    """Return the rules of a request; None when it has none."""
    allowed, bad = sampling.allowed_token_ids, sampling.bad_token_sequences
    if not (allowed or bad or sampling.logit_bias):
        return None
    bias = None
    if sampling.logit_bias:
        values = np.array(list(sampling.logit_bias.values()), dtype=np.float32)
        bias = (_ids(list(sampling.logit_bias), device), to_device(values, device))
    return TokenRules(
        allowed=_ids(sorted(set(allowed)), device) if allowed else None,
        bad=_bad_sequences(bad, device) if bad else None,
        bias=bias,
    )


def _bad_sequences(sequences: Sequence[Sequence[int]], device: torch.device) -> BadSequences:
    prefixes = [
        (token_id, owner, len(sequence) - 1 - place)
        for owner, sequence in enumerate(sequences)
        for place, token_id in enumerate(sequence[:-1])
    ]
    tokens, owners, distances = zip(*prefixes, strict=True) if prefixes else ((), (), ())
    return BadSequences(
        last=_ids([sequence[-1] for sequence in sequences], device),
        prefix_tokens=_ids(tokens, device),
        prefix_owners=_ids(owners, device),
        prefix_distances=_ids(distances, device),
    )


def _ids(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


def banned_by_sequences(
    bad: Sequence[tuple[int, BadSequences]], history: TokenHistory, vocab_size: int
) -> tuple[Int64Array, Tensor]:
    """Return rows, and the tokens of each that complete a bad sequence, [n, vocab_size] bool.

    The last id completes a sequence if the output, without the prompt, ends in the other ids.
    """
    rows = np.array([row for row, _ in bad], dtype=np.int64)
    device = history.tokens.device
    num_sequences = np.array([len(one.last) for _, one in bad])
    num_elements = np.array([len(one.prefix_tokens) for _, one in bad])
    first_sequence = np.cumsum(num_sequences) - num_sequences
    columns = np.stack(
        (history.slots[rows], history.prompt_lens[rows], history.num_tokens[rows], first_sequence)
    )
    columns = columns.repeat(num_elements, axis=1)
    slots, begins, ends, first = to_device(columns, device)
    positions = ends - torch.cat([one.prefix_distances for _, one in bad])
    found = history.tokens[slots, positions.clamp(min=0)]
    is_missing = (positions < begins) | (found != torch.cat([one.prefix_tokens for _, one in bad]))
    owners = first + torch.cat([one.prefix_owners for _, one in bad])
    num_missing = torch.zeros(int(num_sequences.sum()), dtype=torch.int64, device=device)
    num_missing.scatter_add_(0, owners, is_missing.long())
    owner_rows = to_device(np.arange(len(bad)).repeat(num_sequences), device)
    last = torch.cat([one.last for _, one in bad])
    # Bans are counted: of two sequences with the same last id, only one may be complete.
    num_bans = torch.zeros((len(bad), vocab_size), dtype=torch.int32, device=device)
    num_bans.index_put_((owner_rows, last), (num_missing == 0).int(), accumulate=True)
    return rows, num_bans > 0
