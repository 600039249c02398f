"""Tracks the grammar of each slot, and gets the masks of a step from threads beside the model.

State is never taken back: a matcher has only tokens that were sampled, and goes back from drafts
before its job is done. A slot's tokens are compared with those of its sequence whenever they may
differ; if they do, its matcher starts over. A mask that came too late for a step is used by a later
step.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise, takewhile
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.grammars.bitmask_source import BitmaskSource
from pagewire_worker.grammars.compiled import CompiledGrammar, CompiledGrammars
from pagewire_worker.grammars.mask_credit import CHEAP_SECONDS, MaskCredits, cheap_seconds
from pagewire_worker.grammars.mask_jobs import AHEAD_SECONDS, Bill, IntBits, MaskJob
from pagewire_worker.grammars.mask_threads import (
    LEAST_WAIT_SECONDS,
    NUM_FAST_THREADS,
    WAIT_SHARE,
    MaskThreads,
)
from pagewire_worker.grammars.matcher import GrammarError, GrammarMatcher
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.grammar_bitmask import WORD_BITS, GrammarBitmask


def forget_grammars(grammars: BitmaskSource, plan: StepPlan, num_slots: int) -> None:
    """Drop released grammars, and the state of freed slots."""
    if plan.released_grammars:
        grammars.release(plan.released_grammars)
    freed = np.asarray(plan.freed_slots, dtype=np.int64)
    # A slot that does not exist is found when the plan is applied.
    for slot in freed[freed < num_slots].tolist():
        grammars.free(slot)


def follow_grammars(grammars: BitmaskSource, plan: StepPlan) -> None:
    """Add new sequences and forks. Raises PlanError naming the slot whose grammar is not here.

    State from a failed plan is forgotten when the slot is filled again.
    """
    for request in plan.new_sequences:
        grammars.install(request)
    if len(plan.fork_slots):
        grammars.fork(
            np.asarray(plan.fork_slots, dtype=np.int64),
            np.asarray(plan.fork_sources, dtype=np.int64),
        )


@dataclass(slots=True)
class _Slot:
    """A slot that follows a grammar.

    Attributes:
        follower: Its output; replaced by a copy while a job under way reads it.
        is_known: Whether a step has sampled for it successfully. Until then its tokens may belong
            to a fork or request that was undone.
        job: The mask of its next token; None if it was not requested yet.
    """

    grammar: CompiledGrammar
    follower: GrammarMatcher
    bill: Bill
    is_known: bool = False
    job: MaskJob | None = None

    def drop_job(self) -> None:
        """Drop the mask of this output."""
        if self.job is None:
            return
        if not self.job.is_done:
            self.job.is_dropped = True
            self.follower = self.follower.copy()
        self.job = None

    def replace(self, tokens: list[int]) -> None:
        """Set the output."""
        if tokens != self.follower.tokens:
            self.drop_job()
            self.follower.replace(tokens)


class _Part(NamedTuple):
    """The rows of one slot in a step: one per draft and one more, the first of which is `row`."""

    row: int
    drafts: list[int]
    job: MaskJob

    @property
    def rows(self) -> range:
        """All its rows."""
        return range(self.row, self.row + 1 + len(self.drafts))

    @property
    def num_masks(self) -> int:
        """Masks that there are for its first rows, once the job is done."""
        job, wanted = self.job, self.drafts
        if job.reason is not None:
            return 0
        # A job that an earlier step has begun knows other drafts, or none.
        known = job.drafts[: job.num_masks - 1]
        same = takewhile(lambda pair: pair[0] == pair[1], zip(known, wanted, strict=False))
        return 1 + sum(1 for _ in same)


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """The masks of one step.

    Attributes:
        parts: The rows that have a grammar.
        num_rows: All rows.
        began: Time of the start, as time.perf_counter and as CPU time of the threads.
    """

    threads: MaskThreads
    parts: list[_Part]
    num_rows: int
    began: tuple[float, float] = field(default=(0.0, 0.0))

    def __call__(self) -> GrammarBitmask:
        """Wait for the masks, and return them."""
        clock, used = self.began
        seconds = max(LEAST_WAIT_SECONDS, WAIT_SHARE * (time.perf_counter() - clock))
        has_others = self.num_rows > sum(len(part.rows) for part in self.parts)
        jobs = [part.job for part in self.parts]
        self.threads.wait(jobs, used + seconds, has_others=has_others)
        rows, late, bits = list[int](), list[int](), list[IntBits]()
        given_up = dict[int, str]()
        for part in self.parts:
            # Threads may finish more jobs during this loop.
            num_masks = part.num_masks if part.job.is_done else 0
            if part.job.is_done and part.job.reason is not None:
                given_up[part.row] = part.job.reason
            rows += part.rows[:num_masks]
            late += part.rows[num_masks:]
            bits.append(part.job.bits[:num_masks])
        there = np.concatenate(bits)
        return GrammarBitmask(_as_rows(rows), there, _as_rows(late), given_up)


def _as_rows(rows: list[int]) -> Int64Array:
    return np.array(rows, dtype=np.int64)


class GrammarTable:
    """The BitmaskSource of a worker.

    Args:
        num_tokens: Logits of the model; masks are [rows, ceil(num_tokens / 32)].
    """

    def __init__(self, num_tokens: int, compiled: CompiledGrammars) -> None:
        self._num_words = -(-num_tokens // WORD_BITS)
        self._cheap_seconds = cheap_seconds(num_tokens)
        self._credits = MaskCredits()
        self._compiled = compiled
        self._slots: dict[int, _Slot] = {}
        self._bills: WeakValueDictionary[bytes, Bill] = WeakValueDictionary()
        self._threads = MaskThreads()

    def hurry_when(self, is_hurried: Callable[[], bool]) -> None:
        """Stop waiting for slow masks once the model thread has other work to do."""
        self._threads.is_hurried = is_hurried

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop compiled grammars; slots that still follow one keep it."""
        self._compiled.release(grammar_ids)

    def free(self, slot: int) -> None:
        """Forget a slot."""
        held = self._slots.pop(slot, None)
        if held is not None:
            held.drop_job()

    def install(self, request: NewSequence) -> None:
        """Begin to follow a new sequence. Raises PlanError naming the slot."""
        self.free(request.slot)
        grammar_id = request.grammar_id
        if grammar_id is None:
            return
        grammar = self._compiled.find(grammar_id)
        if grammar is None:
            text = f"slot {request.slot}: grammar {grammar_id.hex()} is not compiled here"
            raise PlanError(text, (request.slot,))
        if request.is_beam:
            raise PlanError(f"slot {request.slot}: a beam follows no grammar", (request.slot,))
        emitted = np.asarray(request.emitted_token_ids, dtype=np.int64).tolist()
        # All choices of a request have one bill.
        bill = self._bills.get(request.request_id)
        if bill is None:
            bill = Bill(self._credits.of(request.tenant), self._cheap_seconds)
            self._bills[request.request_id] = bill
        self._slots[request.slot] = _Slot(grammar, GrammarMatcher(grammar, emitted), bill)

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Copy the state of `sources` [n] to `slots` [n]."""
        held = [self._slots.get(source) for source in sources.tolist()]
        for slot, source in zip(slots.tolist(), held, strict=True):
            self.free(slot)
            if source is not None:
                self._slots[slot] = _Slot(source.grammar, source.follower.copy(), source.bill)

    def clear(self) -> None:
        """Forget all slots."""
        for slot in list(self._slots):
            self.free(slot)

    def follows(self, slots: Int64Array) -> bool:
        """Return whether any of `slots` [n] has a grammar."""
        return any(slot in self._slots for slot in slots.tolist())

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], GrammarBitmask | None]:
        """Start to compute the masks of `slots` for tokens at output `positions`, both [rows].

        Rows of one slot follow each other; those behind the first one are behind its drafts.
        """
        firsts = _firsts(slots)
        is_followed = [int(slots[first]) in self._slots for first in firsts[:-1]]
        if not any(is_followed):
            return lambda: None
        self._note_others(slots)
        parts, begun, seconds = list[_Part](), list[MaskJob](), NUM_FAST_THREADS * AHEAD_SECONDS
        for first, end in compress(pairwise(firsts), is_followed):
            slot, position = int(slots[first]), int(positions[first])
            held = self._slots[slot]
            if not held.is_known or held.follower.num_tokens != position:
                held.replace(_output(table, slot, 0, position))
            drafts = _output(table, slot, position, position + end - first - 1)
            if held.job is None:
                known = drafts[: int(seconds / max(held.grammar.mask_seconds, CHEAP_SECONDS))]
                seconds -= len(known) * held.grammar.mask_seconds
                bits: IntBits = np.zeros((1 + len(known), self._num_words), dtype=np.int32)
                held.job = MaskJob(held.grammar, held.follower, bits, held.bill, known)
                begun.append(held.job)
            parts.append(_Part(first, drafts, held.job))
        began = time.perf_counter(), self._threads.fast_seconds()
        if begun:
            self._threads.submit(begun)
        return _Waiting(threads=self._threads, parts=parts, num_rows=len(slots), began=began)

    def _note_others(self, slots: Int64Array) -> None:
        """Note that tenants share a step, in which `slots` [samples] sample."""
        held = [self._slots.get(slot) for slot in slots.tolist()]
        parties = {one.bill.credit for one in held if one is not None}
        if None in held or len(parties) > 1:
            now = time.monotonic()
            for credit in parties:
                credit.others_at = now

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Add the sampled tokens of a step, both [rows]."""
        for slot, token in zip(slots.tolist(), token_ids.tolist(), strict=True):
            held = self._slots.get(slot)
            if held is not None:
                held.drop_job()
                held.follower.append(token)
                held.is_known = True

    def has_grammar(self, slot: int) -> bool:
        """Return whether `slot` has a grammar."""
        return slot in self._slots

    def quick_follower(self, slot: int) -> GrammarMatcher | None:
        """Return what is at the end of the output of `slot`, between steps.

        None where there is no grammar, where no step would wait for the next mask, and where the
        output is still to be read, by a thread.
        """
        held = self._slots.get(slot)
        if held is None or not held.is_known or held.job is not None:
            return None
        if not held.bill.allows(held.grammar) or not held.follower.is_near_end:
            return None
        try:
            return held.follower if held.follower.catch_up() else None
        except GrammarError:
            return None  # the mask job says why

    def charge(self, slot: int, seconds: float) -> None:
        """Charge CPU time of the model thread to the tenant of `slot`, like that of a mask."""
        bill = self._slots[slot].bill
        self._threads.charge(bill.credit, max(0.0, seconds - bill.cheap_seconds))

    def shutdown(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _firsts(slots: Int64Array) -> list[int]:
    """Return where each run of equal `slots` [samples] begins, and their number."""
    begins = np.flatnonzero(np.diff(slots)) + 1
    return [0, *begins.tolist(), len(slots)]


def _output(table: SlotTable, slot: int, begin: int, end: int) -> list[int]:
    """Return what is written from `begin` to `end` of the output of `slot`; waits for the device.

    Behind the known tokens are the drafts of a step.
    """
    if begin == end:
        return []
    first = int(table.prompt_lens[slot])
    token_ids: list[int] = table.tokens[slot, first + begin : first + end].tolist()
    return token_ids
