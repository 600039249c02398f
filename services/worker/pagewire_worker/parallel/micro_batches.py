"""Cuts the batch of a step into micro-batches, which go through the stages one after the other.

While a stage computes one, the stage before computes the next (Huang et al., 2019). It is a run of
tokens; a sequence that is cut computes its tokens in several chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.attention import AttentionMetadata, Int64Array
from pagewire_worker.backend.backend import GroupBatch, StepBatch

LEAST_TOKENS: Final = 32
"""Of a micro-batch: with fewer, reading weights would take longer than products."""

PER_STAGE: Final = 4
"""With these, a stage waits for a small part of a step; with more, each has a cost of its own."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Some tokens of a step, and the numbers of their outputs among those of the step."""

    batch: StepBatch
    outputs: Tensor


def num_micro_batches(num_tokens: int, num_stages: int) -> int:
    """Return how many micro-batches a step of `num_tokens` has."""
    if num_stages == 1:
        return 1
    return max(1, min(PER_STAGE * num_stages, num_tokens // LEAST_TOKENS))


def split_batch(batch: StepBatch, number: int) -> Sequence[MicroBatch]:
    """Return a batch in `number` micro-batches, in the order of its tokens."""
    if number == 1:
        return [MicroBatch(batch, torch.arange(len(batch.output_rows)))]
    ends = np.linspace(0, len(batch.token_ids), number + 1).astype(int).tolist()
    return [_part(batch, first, last) for first, last in pairwise(ends)]


def _part(batch: StepBatch, first: int, last: int) -> MicroBatch:
    rows, own = batch.output_rows, slice(first, last)
    outputs = ((rows >= first) & (rows < last)).nonzero().squeeze(1)
    groups = [
        GroupBatch(group.slot_mapping[own], _attention(group.attention, first, last))
        for group in batch.groups
    ]
    part = replace(
        batch,
        token_ids=batch.token_ids[own],
        positions=batch.positions[own],
        slot_mapping=groups[0].slot_mapping,
        output_rows=rows[outputs] - first,
        attention=groups[0].attention,
        # A view: what is found there is found in the step.
        faults=None if batch.faults is None else batch.faults[own],
        further_groups=tuple(groups[1:]),
        adapters=None if batch.adapters is None else batch.adapters.part(first, last),
    )
    return MicroBatch(part, outputs)


def _attention(whole: AttentionMetadata, first: int, last: int) -> AttentionMetadata:
    """Return the sequences with tokens from `first` to `last`, as they are behind these."""
    starts, ends = whole.query_starts[:-1], whole.query_starts[1:]
    own = (starts < last) & (ends > first)
    lengths: Int64Array = whole.seq_lens - np.maximum(ends - last, 0)
    bounds = np.clip(np.append(starts[own], ends[own][-1:]), first, last) - first
    return AttentionMetadata(bounds, lengths[own], whole.block_tables[own])


def joined(parts: Sequence[MicroBatch], states: Sequence[Tensor]) -> Tensor:
    """Return the states of a step, [outputs, hidden], of those of its micro-batches."""
    if len(states) == 1:
        return states[0]
    return torch.cat(list(states))[torch.cat([part.outputs for part in parts]).argsort()]
