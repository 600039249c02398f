"""Drafts of a head over the hidden states of the target: EAGLE, EAGLE-3.

Of each sequence, the head has read a run of rows. A run begins with the first row whose state the
target has computed on this worker. With a prefix from the cache, or after a preemption, it begins
late, and drafts are worse. Rows of wrong drafts are written again by those of right tokens.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.backend.attention import AttentionBackend, AttentionMetadata
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.backend.state_tap import StateTap
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.kv.kv_cache import KvCache
from pagewire_worker.models.draft_head import DraftHead
from pagewire_worker.sampling.row_maximum import argmax_of_rows
from pagewire_worker.speculation.draft_blocks import DraftBlocks
from pagewire_worker.speculation.draft_model import Sample
from pagewire_worker.speculation.draft_sampling import DraftSampling
from pagewire_worker.speculation.draft_work import WEIGHT, DraftWork
from pagewire_worker.speculation.proposer import (
    LATER,
    NOTHING,
    DraftRequest,
    Drafts,
    SequenceStart,
)

MOST_ROWS: Final = 8
"""Of a sequence in a step, that count as no prompt where the time of following is measured."""
IMPOSSIBLE: Final = -1e30
"""Logit of tokens that a head does not know; finite, since others count as faults."""


class HeadDrafts:
    """Guesses tokens of the sequences in `table` with a head.

    Args:
        cache, attention: Of the layer of the head.
        blocks: What lies in the cache; a slot's first block begins with its run.
        target, tap: What it drafts for, and the states of that which it reads.
        dtype: Of the states of the target.
        table: The slots; their tokens lie on the host.
        sampler: That of the target.
        clock: Seconds, as time.perf_counter.
    """

    def __init__(
        self,
        *,
        head: DraftHead,
        cache: KvCache,
        attention: AttentionBackend,
        blocks: DraftBlocks,
        target: ModelBackend,
        tap: StateTap,
        dtype: torch.dtype,
        table: SlotTable,
        sampler: Sample,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._head = head
        self._cache = cache
        self._attention = attention
        self._target = target
        self._tap = tap
        self._dtype = dtype
        self._blocks = blocks
        self._sampling = DraftSampling(table, torch.from_numpy(blocks.tokens))
        self._table = table
        self._sampler = sampler
        self._clock = clock
        num_slots = len(blocks.num_computed)
        self._is_followed = np.zeros(num_slots, dtype=bool)
        # Position of the first row of each slot's run, and the state behind its last row.
        self._firsts = np.zeros(num_slots, dtype=np.int64)
        self._last = head.embedding.new_zeros((num_slots, head.hidden_size))
        measured = self._measured()
        self._work = DraftWork(
            "draft head", blocks, forget=self.clear, seconds=measured, clock=clock
        )
        self._follow_seconds = measured

    @property
    def blocks(self) -> DraftBlocks:
        """What lies in its cache."""
        return self._blocks

    @property
    def draft_seconds(self) -> float:
        """Seconds to compute one more draft for all sequences."""
        return self._work.seconds

    @property
    def follow_seconds(self) -> float:
        """Mean seconds to read the states of a step without prompts."""
        return self._follow_seconds

    def reading_seconds(self, asked: Sequence[DraftRequest]) -> list[float]:
        """Return [n] zeros: states are read as steps are followed."""
        return [0.0] * len(asked)

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        self._blocks.drop(slot)
        self._is_followed[slot] = True

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`, if there is any: it has left."""
        self._blocks.drop(slot)
        self._is_followed[slot] = False

    def clear(self) -> None:
        """Forget all sequences."""
        self._blocks.clear()
        self._is_followed[:] = False

    def observe(self, slots: Int64Array, positions: Int64Array) -> None:
        """Read the states of a step, of tokens at `positions` of `slots`, [tokens] each."""
        states = self._tap.take()
        if states is None or len(states) != len(slots):
            return
        began = self._clock()
        self._work.run(lambda: self._observe(slots, positions, states))
        if len(slots) <= MOST_ROWS * len(np.unique(slots)):
            self._follow_seconds += WEIGHT * (self._clock() - began - self._follow_seconds)

    def prepare(self, asked: Sequence[DraftRequest], most: int, seconds: float) -> list[int]:
        """Return how many drafts each of `asked` [n] may have, [n]: LATER until states are read."""
        if self._work.rests:
            return [0] * len(asked)
        return [
            max(0, min(most, self._blocks.longest - len(one.tokens)))
            if self._has_read(one)
            else LATER
            for one in asked
        ]

    def propose(self, asked: Sequence[DraftRequest], counts: Sequence[int]) -> list[Drafts]:
        """Return drafts for the places behind the tokens of `asked` [n], at most `counts` [n]."""
        found: list[Drafts] = [NOTHING] * len(asked)
        self._work.run(lambda: self._propose(asked, counts, found))
        return found

    def _has_read(self, one: DraftRequest) -> bool:
        """Return whether the state before the newest token of a sequence is read."""
        num_read = int(self._blocks.num_computed[one.slot])
        return num_read > 0 and self._firsts[one.slot] + num_read == len(one.tokens) - 1

    def _observe(self, slots: Int64Array, positions: Int64Array, states: Tensor) -> None:
        # A row needs the token behind its own; behind the newest one are wrong drafts only.
        is_read = self._is_followed[slots] & (positions < self._table.num_tokens[slots] - 1)
        held = set(slots.tolist())
        starts = np.flatnonzero(np.diff(slots, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(slots)], strict=True):
            num_rows = int(is_read[start:stop].sum())
            slot, begin = int(slots[start]), int(positions[start])
            if num_rows and not self._extend(slot, begin, begin + num_rows, held):
                is_read[start:stop] = False
        rows = np.flatnonzero(is_read)
        if len(rows) == 0:
            return
        host_tokens = self._table.host_tokens
        assert host_tokens is not None, "drafts are proposed from tokens on the host"
        slots, positions = slots[rows], positions[rows]
        fused = self._head.fused(states[torch.from_numpy(rows)])
        token_ids = host_tokens[slots, positions + 1]
        ends = np.flatnonzero(np.diff(slots, append=-1)) + 1
        self._last[slots[ends - 1]] = self._forward(slots, positions, ends, token_ids, fused)
        self._blocks.num_computed[slots[ends - 1]] = (positions + 1 - self._firsts[slots])[ends - 1]

    def _extend(self, slot: int, begin: int, end: int, held: set[int]) -> bool:
        """Make place for rows `begin` to `end` in the run of `slot`, or let one begin with them.

        Returns:
            Whether there is place; if not, the run is dropped.
        """
        num_read, first = int(self._blocks.num_computed[slot]), int(self._firsts[slot])
        if num_read == 0 or not first <= begin <= first + num_read:
            self._blocks.drop(slot)
            self._firsts[slot] = first = begin
        if self._blocks.reserve(slot, end - first, held):
            return True
        self._blocks.drop(slot)
        return False

    def _propose(
        self, asked: Sequence[DraftRequest], counts: Sequence[int], found: list[Drafts]
    ) -> None:
        held = {one.slot for one in asked}
        chosen: list[tuple[int, int, int, int]] = []
        for index, (one, count) in enumerate(zip(asked, counts, strict=True)):
            end, first = len(one.tokens), int(self._firsts[one.slot])
            room = min(count, self._blocks.longest - end)
            if room < 1 or not self._has_read(one):
                continue
            if self._blocks.reserve(one.slot, end - 1 - first + room - 1, held):
                self._blocks.tokens[one.slot, :end] = one.tokens
                chosen.append((index, one.slot, end, room))
        self._work.draft(chosen, self._draft, found)

    def _draft(self, slots: Int64Array, ends: Int64Array, counts: Int64Array) -> None:
        """Write `counts` drafts behind the tokens of `slots`, [n] each, in so many small steps."""
        hidden = self._last[slots]
        self._sampling.begin()
        while True:
            self._blocks.tokens[slots, ends] = drafts = self._choose(slots, ends, hidden)
            going = counts > 1
            if not going.any():
                return
            slots, ends, counts, drafts = (
                slots[going],
                ends[going],
                counts[going] - 1,
                drafts[going],
            )
            rows = np.arange(1, len(slots) + 1)
            hidden = self._forward(slots, ends - 1, rows, drafts, hidden[torch.from_numpy(going)])
            ends = ends + 1

    def _choose(self, slots: Int64Array, ends: Int64Array, hidden: Tensor) -> npt.NDArray[np.int32]:
        """Return the draft for the place `ends` of each slot, [n]: the target's formula decides."""
        rows = self._sampling.rows(slots, ends)
        logits = self._head.logits(hidden, self._target_logits)
        target_ids = self._head.target_ids
        if rows.is_plain:
            token_ids = argmax_of_rows(logits)
            token_ids = token_ids if target_ids is None else target_ids[token_ids]
        else:
            if target_ids is not None:
                whole = logits.new_full((len(logits), len(self._head.embedding)), IMPOSSIBLE)
                logits = whole.index_copy_(1, target_ids, logits)
            token_ids = self._sampler(logits, rows).token_ids
        return token_ids.numpy().astype(np.int32)

    def _forward(
        self,
        slots: Int64Array,
        positions: Int64Array,
        ends: Int64Array,
        token_ids: npt.NDArray[np.int32],
        states: Tensor,
    ) -> Tensor:
        """Compute rows at `positions` of `slots`, with the tokens behind them, [rows] each.

        Args:
            ends: Where the rows of each sequence end, [n].

        Returns:
            The state behind the last row of each sequence, [n, hidden].
        """
        size, tables = self._blocks.block_size, self._blocks.tables
        own = positions - self._firsts[slots]
        owners, num_rows = slots[ends - 1], own[ends - 1] + 1
        batch = StepBatch(
            token_ids=torch.from_numpy(token_ids).long(),
            positions=torch.from_numpy(positions),
            slot_mapping=torch.from_numpy(tables[slots, own // size] * size + own % size),
            output_rows=torch.from_numpy(ends - 1),
            attention=AttentionMetadata(
                np.concatenate((np.zeros(1, dtype=np.int64), ends)),
                num_rows,
                tables[owners, : -(-int(num_rows.max()) // size)],
            ),
            # Values that are not finite must not spread to others through their blocks.
            faults=torch.zeros(len(slots), dtype=torch.int64),
        )
        return self._head.forward(batch, states, self._cache, self._attention)

    def _target_logits(self, hidden: Tensor) -> Tensor:
        return self._target.logits(hidden.to(self._dtype))

    def _measured(self) -> float:
        """Return the seconds of one draft of one sequence; the first place is overwritten."""
        one = np.zeros(1, dtype=np.int64)
        seconds = []
        for _ in range(3):
            began = self._clock()
            states = self._forward(one, one, one + 1, one.astype(np.int32), self._last[:1])
            argmax_of_rows(self._head.logits(states, self._target_logits))
            seconds.append(self._clock() - began)
        return min(seconds)
