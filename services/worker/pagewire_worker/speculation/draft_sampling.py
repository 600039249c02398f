"""Gives the sampling parameters of drafts: those of the target, for the places of its tokens."""

from dataclasses import replace

import numpy as np
import torch

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.sampling.sampling_table import NO_LOGPROBS, SamplingRows
from pagewire_worker.sampling.token_history import TokenHistory


class DraftSampling:
    """The sampling parameters of drafts, which mostly follow those of the drafts before them.

    Attributes:
        has_rules: Whether tokens of the rows that were asked for last are banned, biased or
            penalised.

    Args:
        table: The slots of the target.
        tokens: Tokens and drafts of the slots, [slots, places].
    """

    def __init__(self, table: SlotTable, tokens: torch.Tensor) -> None:
        self._table = table
        self._tokens = tokens
        self._slots = self._ends = np.zeros(0, dtype=np.int64)
        self._rows: SamplingRows | None = None
        self.has_rules = False

    def begin(self) -> None:
        """Begin with other sequences, or others of their places."""
        self._rows = None

    def rows(self, slots: Int64Array, ends: Int64Array) -> SamplingRows:
        """Return the parameters for the places `ends` of `slots`, [n] each."""
        rows = self._rows
        if rows is not None and np.array_equal(slots, self._slots):
            # Only the places are others, by as much for all. To look up everything takes 50 us.
            rows.position.add_(int(ends[0] - self._ends[0]))
            self._ends = ends
            return rows
        prompt_lens = self._table.prompt_lens[slots]
        history = TokenHistory(self._tokens, slots, prompt_lens, ends)
        rows = self._table.sampling.rows(slots, ends - prompt_lens, history)
        if rows.is_plain:
            self.has_rules = False
            return rows
        rows = replace(rows, num_logprobs=np.full(len(slots), NO_LOGPROBS, dtype=np.int64))
        self.has_rules = bool(rows.rules.by_row or rows.banned or len(rows.penalties.affected()))
        self._rows, self._slots, self._ends = None if self.has_rules else rows, slots, ends
        return rows
