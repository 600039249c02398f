"""A draft model: a small model whose likeliest tokens are the drafts of a large one.

It computes the drafts of all sequences of a step together, in as many small steps as a sequence
gets drafts. Sampled tokens are drafted by the formula of the target, with their seeds and places.
The same noise mostly chooses the same token. Unseen tokens of a sequence are read in chunks, which
delay steps by a bounded time.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.backend.attention import AttentionMetadata
from pagewire_worker.backend.backend import ModelBackend, StepBatch
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.sampling.sampling_table import SamplingRows
from pagewire_worker.speculation.draft_blocks import DraftBlocks
from pagewire_worker.speculation.draft_sampling import DraftSampling
from pagewire_worker.speculation.draft_work import WEIGHT, DraftWork
from pagewire_worker.speculation.proposer import (
    LATER,
    NOTHING,
    DraftRequest,
    Drafts,
    SequenceStart,
)

CHUNK_SHARE: Final = 0.25
"""Of the time of a step, that reading unseen tokens may take beside it."""
CHUNK_SECONDS: Final = 0.005
"""That it may take in any case."""
LEAST_CHUNK, MOST_CHUNK = 16, 512
"""Tokens that are read beside a step."""
MOST_UNSEEN: Final = 128
"""Tokens that a sequence with drafts has not been read of: those of some steps before."""

Sample = Callable[[Tensor, SamplingRows], SampledTokens]
"""(logits [rows, vocab], rows) -> a token per row."""


@runtime_checkable
class DraftsAtOnce(Protocol):
    """A model that computes several tokens of its sequences in one call."""

    def draft(self, batch: StepBatch, rows: SamplingRows, num_drafts: int) -> Tensor:
        """Return the next tokens of sequences with one token each, [num_drafts, sequences].

        The arrays of `batch`, whose tables have the blocks of all, may change.

        Args:
            rows: How tokens are chosen, without rules; the first for their present positions.
        """
        ...


class DraftModel:
    """Guesses tokens of the sequences in `table` with a model of its own.

    Args:
        backend: The model over its cache, all of whose layers are in one cache group.
        blocks: What lies in the cache.
        table: The slots; their tokens lie on the host.
        sampler: That of the target.
        draft_seconds: Time of one of its small steps, as it was measured.
        clock: Seconds, as time.perf_counter.
    """

    def __init__(
        self,
        *,
        backend: ModelBackend,
        blocks: DraftBlocks,
        table: SlotTable,
        sampler: Sample,
        draft_seconds: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._blocks = blocks
        self._sampling = DraftSampling(table, torch.from_numpy(blocks.tokens))
        self._table = table
        self._sampler = sampler
        self._clock = clock
        self._work = DraftWork(
            "draft model", blocks, forget=blocks.clear, seconds=draft_seconds, clock=clock
        )
        self._token_seconds = 0.0

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
        """No step is followed."""
        return 0.0

    def reading_seconds(self, asked: Sequence[DraftRequest]) -> list[float]:
        """Return the seconds to read what is unread of each of `asked` [n], [n].

        The last token of a sequence and those of the step before are read with the drafts.
        """
        each = self._token_seconds or self.draft_seconds
        computed = self._blocks.num_computed
        return [each * max(0, len(one.tokens) - 1 - int(computed[one.slot])) for one in asked]

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        self._blocks.drop(slot)

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`, if there is any: it has left."""
        self._blocks.drop(slot)

    def clear(self) -> None:
        """Forget all sequences."""
        self._blocks.clear()

    def observe(self, slots: Int64Array, positions: Int64Array) -> None:
        """Follow nothing: tokens are read when drafts are wanted."""

    def prepare(self, asked: Sequence[DraftRequest], most: int, seconds: float) -> list[int]:
        """Read a chunk of what is unseen of `asked` [n]; return how many drafts each may have, [n].

        That is `most` or, until enough is read, LATER.

        Args:
            seconds: Time of the step before, by which the chunk is bounded.
        """
        counts = [LATER] * len(asked)
        self._work.run(lambda: self._prepare(asked, most, self._chunk(seconds), counts))
        return [0] * len(asked) if self._work.rests else counts

    def propose(self, asked: Sequence[DraftRequest], counts: Sequence[int]) -> list[Drafts]:
        """Return drafts for the places behind the tokens of `asked` [n], at most `counts` [n]."""
        found: list[Drafts] = [NOTHING] * len(asked)
        self._work.run(lambda: self._propose(asked, counts, found))
        return found

    def _prepare(
        self, asked: Sequence[DraftRequest], most: int, room: int, counts: list[int]
    ) -> None:
        held, reading = {one.slot for one in asked}, set[bytes | None]()
        parts: list[tuple[int, int, int]] = []
        for index, (slot, tokens) in enumerate((one.slot, one.tokens) for one in asked):
            end = len(tokens)
            if end >= self._blocks.longest:
                counts[index] = 0
                continue
            request, begin = self._table.request_ids[slot], self._blocks.follow(slot, tokens)
            if begin == 0:
                begin = self._share(slot, tokens)
                if begin == 0 and request in reading:
                    continue  # a sibling is reading the same prompt
            # The last token is left for the step that proposes.
            num_read = 0 if end - begin <= most + 1 else min(room, end - begin - 1)
            if num_read:
                if not self._blocks.reserve(slot, begin + num_read, held):
                    counts[index] = 0
                    continue
                parts.append((slot, begin, begin + num_read))
                reading.add(request)
                room -= num_read
            if end - begin - num_read <= most + 1:
                counts[index] = min(most, self._blocks.longest - end)
        if parts:
            self._read(*np.array(parts, dtype=np.int64).T)

    def _share(self, slot: int, tokens: npt.NDArray[np.int32]) -> int:
        """Take over what another choice of the same request has; return how many tokens."""
        own = self._table.request_ids[slot]
        computed = self._blocks.num_computed
        others = [
            other
            for other in np.flatnonzero(computed).tolist()
            if other != slot and self._table.request_ids[other] == own
        ]
        if not others:
            return 0
        self._blocks.drop(slot)
        self._blocks.share(slot, max(others, key=lambda other: computed[other]), tokens)
        return int(computed[slot])

    def _chunk(self, seconds: float) -> int:
        """Return how many tokens may be read beside a step of `seconds`."""
        if self._token_seconds == 0.0:
            return LEAST_CHUNK
        num_tokens = int(max(CHUNK_SECONDS, CHUNK_SHARE * seconds) / self._token_seconds)
        return min(max(num_tokens, LEAST_CHUNK), MOST_CHUNK)

    def _read(self, slots: Int64Array, begins: Int64Array, ends: Int64Array) -> None:
        """Compute what is between `begins` and `ends` of `slots`, [n] each."""
        began = self._clock()
        self._forward(slots, begins, ends, has_outputs=False)
        seconds = (self._clock() - began) / int((ends - begins).sum())
        weight = WEIGHT if self._token_seconds else 1.0
        self._token_seconds += weight * (seconds - self._token_seconds)

    def _propose(
        self, asked: Sequence[DraftRequest], counts: Sequence[int], found: list[Drafts]
    ) -> None:
        held = {one.slot for one in asked}
        chosen: list[tuple[int, int, int, int, int]] = []
        for index, (one, count) in enumerate(zip(asked, counts, strict=True)):
            end = len(one.tokens)
            room = min(count, self._blocks.longest - end)
            if room < 1:
                continue
            begin = self._blocks.follow(one.slot, one.tokens)
            is_seen = end - begin <= MOST_UNSEEN
            if is_seen and self._blocks.reserve(one.slot, end + room - 1, held):
                chosen.append((index, one.slot, begin, end, room))
        self._work.draft(chosen, self._draft, found)

    def _draft(
        self, slots: Int64Array, begins: Int64Array, ends: Int64Array, counts: Int64Array
    ) -> None:
        """Write `counts` drafts behind the tokens of `slots`, [n] each, in so many small steps."""
        self._sampling.begin()
        while len(slots):
            rows, backend = self._sampling.rows(slots, ends), self._backend
            is_one_each = bool((begins + 1 == ends).all())
            if isinstance(backend, DraftsAtOnce) and is_one_each and not self._sampling.has_rules:
                num = int(counts.min())
                # The arrays of a batch change.
                batch = self._batch(slots, begins, ends.copy(), num)
                drafts = backend.draft(batch, rows, num)
                self._blocks.num_computed[slots] = ends + num - 1
            else:
                num = 1
                hidden = self._forward(slots, begins, ends, has_outputs=True)
                drafts = self._choose(rows, hidden).unsqueeze(0)
            places = ends[:, None] + np.arange(num)
            self._blocks.tokens[slots[:, None], places] = drafts.numpy().T
            going = counts > num
            slots, counts, ends = slots[going], counts[going] - num, ends[going] + num
            begins = ends - 1

    def _choose(self, rows: SamplingRows, hidden: Tensor) -> Tensor:
        """Return a draft for each of `rows` [n], [n] int64."""
        if rows.is_plain:
            return self._backend.greedy(hidden).token_ids
        return self._sampler(self._backend.logits(hidden), rows).token_ids

    def _forward(
        self, slots: Int64Array, begins: Int64Array, ends: Int64Array, *, has_outputs: bool
    ) -> Tensor:
        """Compute the tokens from `begins` to `ends` of `slots`, [n] each.

        Returns:
            The states of their last tokens, [n, hidden]; without outputs [0, hidden].
        """
        batch = self._batch(slots, begins, ends, int(has_outputs))
        self._blocks.num_computed[slots] = ends
        return self._backend.forward(batch)

    def _batch(
        self, slots: Int64Array, begins: Int64Array, ends: Int64Array, num_drafts: int
    ) -> StepBatch:
        """Return the batch of the tokens from `begins` to `ends` of `slots`, [n] each.

        Args:
            num_drafts: Behind each, which its tables have room for; without any it has no outputs.
        """
        num_rows = ends - begins
        query_starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(num_rows)))
        owners = slots.repeat(num_rows)
        positions = np.arange(len(owners)) + (begins - query_starts[:-1]).repeat(num_rows)
        size, blocks = self._blocks.block_size, self._blocks.tables
        places = blocks[owners, positions // size] * size + positions % size
        last_rows = query_starts[1:] - 1 if num_drafts else query_starts[:0]
        longest = int(ends.max()) + max(0, num_drafts - 1)
        return StepBatch(
            token_ids=torch.from_numpy(self._blocks.tokens[owners, positions]).long(),
            positions=torch.from_numpy(positions),
            slot_mapping=torch.from_numpy(places),
            output_rows=torch.from_numpy(last_rows),
            attention=AttentionMetadata(query_starts, ends, blocks[slots, : -(-longest // size)]),
            is_decode=num_drafts > 0 and bool((num_rows == 1).all()),
            # Values that are not finite must not spread to others through their blocks.
            faults=torch.zeros(len(owners), dtype=torch.int64),
        )
