"""Tracks the grammar of each slot, and gets the masks of a step from threads beside the model.

State is never taken back. A slot's tokens are compared with those of its sequence whenever they may
differ; if they do, its matcher starts over. A mask that came too late for a step is used by a later
step.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import numpy as np

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import NewSequence, StepPlan
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.grammars.bitmask_source import BitmaskSource
from pagewire_worker.grammars.compiled import CompiledGrammar, CompiledGrammars
from pagewire_worker.grammars.mask_credit import MaskCredits, cheap_seconds
from pagewire_worker.grammars.mask_jobs import Bill, IntBits, MaskJob
from pagewire_worker.grammars.mask_threads import LEAST_WAIT_SECONDS, WAIT_SHARE, MaskThreads
from pagewire_worker.grammars.matcher import GrammarMatcher
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


@dataclass(slots=True, kw_only=True)
class _Waiting:
    """The masks of one step.

    Attributes:
        rows: Rows that have a grammar, [n].
        bits: [n, words] for the masks of jobs begun with this step.
        began: Time of the start, as time.perf_counter and as CPU time of the threads.
    """

    threads: MaskThreads
    rows: Int64Array
    jobs: list[MaskJob]
    bits: IntBits
    num_rows: int
    began: tuple[float, float] = field(default=(0.0, 0.0))

    def __call__(self) -> GrammarBitmask:
        """Wait for the masks, and return them."""
        clock, used = self.began
        seconds = max(LEAST_WAIT_SECONDS, WAIT_SHARE * (time.perf_counter() - clock))
        has_others = self.num_rows > len(self.jobs)
        self.threads.wait(self.jobs, used + seconds, has_others=has_others)
        # Threads may finish more jobs during this loop.
        is_done = np.array([job.is_done for job in self.jobs])
        given_up = {
            int(self.rows[index]): job.reason
            for index, job in enumerate(self.jobs)
            if is_done[index] and job.reason is not None
        }
        has_mask = is_done & ~np.isin(self.rows, list(given_up))
        for index in np.flatnonzero(has_mask).tolist():
            if self.jobs[index].bits.base is not self.bits:
                self.bits[index] = self.jobs[index].bits
        if has_mask.all():
            return GrammarBitmask(self.rows, self.bits)
        late = self.rows[~has_mask]
        return GrammarBitmask(self.rows[has_mask], self.bits[has_mask], late, given_up)


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
        """Start to compute the masks of `slots` for tokens at output `positions`, both [rows]."""
        rows = [row for row, slot in enumerate(slots.tolist()) if slot in self._slots]
        if not rows:
            return lambda: None
        bits: IntBits = np.zeros((len(rows), self._num_words), dtype=np.int32)
        self._note_others(rows, slots)
        jobs, begun = [], []
        for index, row in enumerate(rows):
            slot, position = int(slots[row]), int(positions[row])
            held = self._slots[slot]
            if not held.is_known or held.follower.num_tokens != position:
                held.replace(_output(table, slot, position))
            if held.job is None:
                held.job = MaskJob(held.grammar, held.follower, bits[index], held.bill)
                begun.append(held.job)
            jobs.append(held.job)
        began = time.perf_counter(), self._threads.fast_seconds()
        if begun:
            self._threads.submit(begun)
        where = np.asarray(rows, dtype=np.int64)
        return _Waiting(
            threads=self._threads,
            rows=where,
            jobs=jobs,
            bits=bits,
            num_rows=len(slots),
            began=began,
        )

    def _note_others(self, rows: Sequence[int], slots: Int64Array) -> None:
        """Note that tenants share a step: `rows` of `slots` [samples] have a grammar."""
        parties = {self._slots[int(slots[row])].bill.credit for row in rows}
        if len(rows) < len(slots) or len(parties) > 1:
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

    def shutdown(self) -> None:
        """End the threads."""
        self._threads.shutdown()


def _output(table: SlotTable, slot: int, position: int) -> list[int]:
    """Return the first `position` tokens of the output of `slot`; waits for the device."""
    begin = int(table.prompt_lens[slot])
    token_ids: list[int] = table.tokens[slot, begin : begin + position].tolist()
    return token_ids
