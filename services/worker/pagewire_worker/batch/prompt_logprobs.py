"""Log-probabilities of prompt tokens: finds the states that predict them, and packs the results.

The state of position p predicts the token at p + 1. No state predicts the first token; the token
that the last state predicts is sampled.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pagewire_shared.kv.arrays import F32Array, Int64Array
from pagewire_shared.steps.result import PromptLogprobs
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.sampling.logprobs import join_logprobs, pack_top, token_logprobs
from pagewire_worker.sampling.sampling_table import NO_LOGPROBS

PIECE_ROWS = 256
"""States whose logits exist at once; a whole chunk would take its length times the vocabulary."""


Logits = Callable[[Tensor, AdapterRows | None], Tensor]
"""Turns states [rows, hidden], with the adapters of these rows, into logits [rows, vocab]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRows:
    """States of a step that predict requested prompt tokens.

    Attributes:
        slots, first_positions, counts: As in PromptLogprobs, [slots].
        rows: [tokens] indices of the states in the flat batch.
        num_top: [tokens] number of alternatives requested.
        targets: [tokens] int64 on the device, the predicted tokens.
    """

    slots: Int64Array
    first_positions: Int64Array
    counts: Int64Array
    rows: Int64Array
    num_top: Int64Array
    targets: Tensor


def prompt_rows(
    table: SlotTable,
    slots: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    first_rows: Int64Array,
) -> PromptRows | None:
    """Return the rows of a step that computes `starts` to `ends` of `slots`, [scheduled] each.

    `first_rows` are their first rows in the flat batch. Returns None when no prompt
    log-probabilities were requested.
    """
    wanted = table.sampling.num_prompt_logprobs(slots)
    if (wanted == NO_LOGPROBS).all():
        return None
    counts = np.minimum(ends, table.prompt_lens[slots] - 1) - starts
    which = np.flatnonzero((wanted != NO_LOGPROBS) & (counts > 0))
    if len(which) == 0:
        return None
    counts = counts[which]
    sequence = which.repeat(counts)
    offsets = np.arange(len(sequence)) - (np.cumsum(counts) - counts).repeat(counts)
    where = np.stack((slots[sequence], starts[sequence] + offsets + 1))
    token_slots, positions = to_device(where, table.tokens.device)
    return PromptRows(
        slots=slots[which],
        first_positions=starts[which] + 1,
        counts=counts,
        rows=first_rows[sequence] + offsets,
        num_top=wanted[sequence],
        targets=table.tokens[token_slots, positions].long(),
    )


def prompt_logprobs(
    asked: PromptRows, hidden: Tensor, adapters: AdapterRows | None, logits: Logits
) -> PromptLogprobs:
    """Return the log-probabilities that the states `hidden` [tokens, hidden] give.

    Args:
        adapters: Of these tokens; None if none has one.
        logits: Called for at most PIECE_ROWS rows.
    """
    most = int(asked.num_top.max())
    parts = []
    for first in range(0, len(hidden), PIECE_ROWS):
        end = min(first + PIECE_ROWS, len(hidden))
        own = None if adapters is None else adapters.part(first, end)
        rows = logits(hidden[first:end], own)
        parts.append(token_logprobs(rows, asked.targets[first:end], most))
    found = join_logprobs(parts)
    top = pack_top(found, asked.num_top)
    values: F32Array = found.logprobs.cpu().numpy()
    return PromptLogprobs(
        slots=asked.slots.astype(np.uint32),
        first_positions=asked.first_positions.astype(np.uint32),
        counts=asked.counts.astype(np.uint32),
        logprobs=values,
        ranks=found.ranks.cpu().numpy().astype(np.uint32),
        num_top=top.counts,
        top_token_ids=top.token_ids,
        top_logprobs=top.logprobs,
    )
