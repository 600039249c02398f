"""Which grammar each slot follows, and the masks of a step. The masks are computed in a thread of
their own while the model runs.

Nothing is ever taken back: a slot's tokens are compared with those of its sequence whenever they
may be others, and its matcher starts over where they are.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from llguidance import LLExecutor, LLMatcher
from llguidance.numpy import fill_next_token_bitmask_par

from pagewire_worker.compiled_grammars import CompiledGrammars
from pagewire_worker.grammar_follower import GrammarError, GrammarFollower
from pagewire_worker.slots import Int64Array, PlanError, SlotTable
from pagewire_worker.step import NewRequest
from pagewire_worker.token_masks import WORD_BITS, TokenMasks

MASK_THREADS = 2
"""Beside the model's own: a mask takes some 10 microseconds, rarely milliseconds."""


@dataclass(slots=True)
class _Slot:
    """A slot that follows a grammar; `is_known` once a step that sampled for it went through, until
    when its tokens may be those of a fork or request that was undone."""

    follower: GrammarFollower
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Masks of all rows but those of `failed`, which maps rows to reasons."""

    bits: npt.NDArray[np.int32]
    failed: dict[int, str]


class GrammarTable:
    """The MaskSource of a worker.

    Args:
        num_tokens: Logits of the model; masks are [rows, ceil(num_tokens / 32)].
        compiled: Where grammars are found.
        num_threads: How many masks are computed at once.
    """

    def __init__(
        self, num_tokens: int, compiled: CompiledGrammars, num_threads: int = MASK_THREADS
    ) -> None:
        self._num_words = -(-num_tokens // WORD_BITS)
        self._compiled = compiled
        self._slots: dict[int, _Slot] = {}
        self._executor = LLExecutor(num_threads)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="token-masks")
        self._under_way: Future[_Outcome] | None = None

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop compiled grammars; slots that still follow one keep it."""
        self._compiled.release(grammar_ids)

    def free(self, slot: int) -> None:
        """Forget a slot."""
        self._settle()
        self._slots.pop(slot, None)

    def install(self, request: NewRequest) -> None:
        """Begin to follow a new request. Raises PlanError naming the slot."""
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
        self._slots[request.slot] = _Slot(GrammarFollower(grammar, emitted))

    def fork(self, slots: Int64Array, sources: Int64Array) -> None:
        """Make `slots` [n] follow what `sources` [n] follow."""
        self._settle()
        held = [self._slots.get(source) for source in sources.tolist()]
        for slot, source in zip(slots.tolist(), held, strict=True):
            if source is None:
                self._slots.pop(slot, None)
            else:
                self._slots[slot] = _Slot(source.follower.copy())

    def clear(self) -> None:
        """Forget all slots."""
        self._settle()
        self._slots.clear()

    def follows(self, slots: Int64Array) -> bool:
        """Return whether any of `slots` [n] has a grammar."""
        return any(slot in self._slots for slot in slots.tolist())

    def begin(
        self, slots: Int64Array, positions: Int64Array, table: SlotTable
    ) -> Callable[[], TokenMasks | None]:
        """Start to compute the masks of `slots` for tokens at output `positions`, both [rows]."""
        self._settle()
        rows = [row for row, slot in enumerate(slots.tolist()) if slot in self._slots]
        if not rows:
            return lambda: None
        followers = []
        for row in rows:
            slot, position = int(slots[row]), int(positions[row])
            held = self._slots[slot]
            if not held.is_known or held.follower.num_tokens != position:
                held.follower.replace(_output(table, slot, position))
            followers.append(held.follower)
        future = self._thread.submit(self._compute, followers)
        self._under_way = future
        masked_slots = slots[rows]

        def wait() -> TokenMasks:
            outcome = future.result()
            if outcome.failed:
                raise _plan_error(masked_slots, outcome.failed)
            return TokenMasks(np.asarray(rows, dtype=np.int64), outcome.bits)

        return wait

    def accept(self, slots: Int64Array, token_ids: Int64Array) -> None:
        """Take what a step sampled, both [rows]."""
        for slot, token in zip(slots.tolist(), token_ids.tolist(), strict=True):
            held = self._slots.get(slot)
            if held is not None:
                held.follower.append(token)
                held.is_known = True

    def shutdown(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)

    def _settle(self) -> None:
        """Wait for the masks of a step that failed before it asked for them."""
        if self._under_way is not None:
            self._under_way.exception()
            self._under_way = None

    def _compute(self, followers: Sequence[GrammarFollower]) -> _Outcome:
        """Return the masks of `followers`; runs in the thread."""
        bits = np.zeros((len(followers), self._num_words), dtype=np.int32)
        matchers: dict[int, LLMatcher] = {}
        failed: dict[int, str] = {}
        for row, follower in enumerate(followers):
            matcher = _caught_up(follower, failed, row)
            if matcher is not None:
                matchers[row] = matcher
        self._fill(matchers, bits)
        for row, matcher in matchers.items():
            if matcher.is_error():
                fresh = _started_over(followers[row], failed, row)
                if fresh is not None:
                    self._fill({row: fresh}, bits)
        return _Outcome(bits, failed)

    def _fill(self, matchers: dict[int, LLMatcher], bits: npt.NDArray[np.int32]) -> None:
        pairs = [(matcher, row) for row, matcher in matchers.items()]
        if pairs:
            fill_next_token_bitmask_par(self._executor, pairs, bits)


def _caught_up(follower: GrammarFollower, failed: dict[int, str], row: int) -> LLMatcher | None:
    try:
        return follower.catch_up()
    except GrammarError:
        return _started_over(follower, failed, row)


def _started_over(follower: GrammarFollower, failed: dict[int, str], row: int) -> LLMatcher | None:
    try:
        return follower.start_over()
    except GrammarError as error:
        failed[row] = str(error)
        return None


def _output(table: SlotTable, slot: int, position: int) -> list[int]:
    """Return the first `position` tokens of the output of `slot`; waits for the device."""
    begin = int(table.prompt_lens[slot])
    token_ids: list[int] = table.tokens[slot, begin : begin + position].tolist()
    return token_ids


def _plan_error(slots: Int64Array, failed: dict[int, str]) -> PlanError:
    culprits = tuple(int(slots[row]) for row in failed)
    reasons = "; ".join(f"slot {int(slots[row])}: {text}" for row, text in failed.items())
    return PlanError(f"structured output: {reasons}", culprits)
