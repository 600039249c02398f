"""The masks of one output to compute, the CPU time they take, and the limit per request. Starts no
threads.

The cost of earlier masks decides in which thread a job runs, but never changes its result. Masks
behind drafts are computed only in fast threads, and while the tenant has credit to spare.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from llguidance.numpy import fill_next_token_bitmask

from pagewire_shared.sampling.grammar_source import first_reason, is_fault_of_output
from pagewire_worker.grammars.compiled import CompiledGrammar
from pagewire_worker.grammars.mask_credit import PROVEN_MASKS, Credit
from pagewire_worker.grammars.matcher import GrammarError, GrammarMatcher
from pagewire_worker.sampling.grammar_bitmask import WORD_BITS

_logger = logging.getLogger(__name__)

CREDIT_SECONDS = 5.0
"""CPU time that the slow masks of a request may take, apart from MASK_SECONDS for each of them."""

MASK_SECONDS = 0.005
"""CPU time that is added for each slow mask: a limit on the average."""

SLICE_SECONDS = 0.005
"""CPU time after which reading a long output lets other jobs run."""

AHEAD_SECONDS = 0.002
"""CPU time that the masks behind the drafts of a job may take, and those of a step by earlier ones:
a fraction of what a step waits for masks."""

IntBits = npt.NDArray[np.int32]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Bill:
    """CPU time of the masks of one request, all its choices together.

    Attributes:
        cheap_seconds: CPU time of a free mask.
        seconds: CPU time of slow masks.
        num_masks: Number of slow masks.
        excess_seconds: CPU time of all masks beyond the free part.
        num_all: Number of all masks.
    """

    credit: Credit
    cheap_seconds: float
    seconds: float = 0.0
    num_masks: int = 0
    excess_seconds: float = 0.0
    num_all: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether its masks have been cheap so far, or nearly so."""
        is_known = self.num_all >= PROVEN_MASKS
        return is_known and self.excess_seconds <= self.num_all * self.cheap_seconds

    def allows(self, grammar: CompiledGrammar) -> bool:
        """Whether steps may wait for masks of `grammar`, as far as is known."""
        if grammar.is_slow:
            return False
        return self.credit.allows(time.monotonic(), is_proven=self.is_proven)

    @property
    def is_exceeded(self) -> bool:
        """Whether it has cost more than a request may."""
        return self.seconds > CREDIT_SECONDS + MASK_SECONDS * self.num_masks

    @property
    def reason(self) -> str:
        """The reason to end the request, in one line."""
        return (
            f"the grammar is too costly to follow: {self.seconds:.1f} s of CPU time for "
            f"{self.num_masks} tokens; make it less ambiguous, or the output shorter"
        )


@dataclass(slots=True, eq=False)
class MaskJob:
    """The mask of the next token of an output, and of the places behind its drafts.

    Attributes:
        follower: The output; not changed while the job is under way.
        bits: [1 + drafts, words], receives the masks.
        drafts: Tokens guessed for the places behind the output, at most as many as there are bits.
        num_masks: Masks that there are; those behind drafts that are not allowed are left out.
        reason: The reason if there is no mask and never will be; else None.
        is_done: Whether there is a mask, or a reason.
        is_dropped: Whether the mask is no longer needed.
        is_slow: Whether steps do not wait for the mask.
        is_read: Whether the output is read to its end, so that only the mask is left to compute.
        seconds: CPU time so far, and
        charged: the part of it that is charged.
    """

    grammar: CompiledGrammar
    follower: GrammarMatcher
    bits: IntBits
    bill: Bill
    drafts: Sequence[int] = ()
    num_masks: int = 0
    reason: str | None = None
    is_done: bool = False
    is_dropped: bool = False
    is_slow: bool = False
    is_read: bool = False
    seconds: float = 0.0
    charged: float = 0.0

    @property
    def has_others(self) -> bool:
        """Whether other tenants would notice its CPU time."""
        return self.bill.credit.has_others(time.monotonic())

    def find_pace(self) -> bool:
        """Set and return `is_slow` from present knowledge; it never changes back."""
        self.is_slow = self.is_slow or not self.bill.allows(self.grammar)
        return self.is_slow

    def read(self) -> float:
        """Continue to read the output for a slice of time.

        Returns the CPU time, in which the interpreter lock is held.
        """
        return self._run(self._read_on)

    def fill(self) -> float:
        """Compute the masks of an output that was read. Return the CPU time."""
        seconds = self._run(self._fill)
        self.grammar.note_mask(seconds)
        self.num_masks = 1
        is_quick = self.reason is None and not self.is_slow
        if self.drafts and is_quick and self.bill.credit.can_spare(time.monotonic()):
            seconds += self._run(self._fill_ahead)
        self.is_done = True
        return seconds

    def charge(self, *, is_fast: bool) -> None:
        """Charge the CPU time since the last call to the bill, or to the credit if `is_fast`.

        A job with an exceeded bill gets no mask. Calls for all jobs are made under one lock.
        """
        bill, free = self.bill, self._free_seconds
        excess = max(0.0, self.seconds - free)
        if is_fast:
            bill.credit.charge(excess - max(0.0, self.charged - free), time.monotonic())
        else:
            bill.seconds += self.seconds - self.charged
            bill.num_masks += self.is_done
        self.charged = self.seconds
        if self.is_done:
            bill.num_all += max(1, self.num_masks)
            bill.excess_seconds += excess
        if not is_fast and bill.is_exceeded:
            self.reason, self.is_done = bill.reason, True

    @property
    def _free_seconds(self) -> float:
        """CPU time that is free for its masks so far."""
        return self.bill.cheap_seconds * max(1, self.num_masks)

    def _run(self, work: Callable[[], None]) -> float:
        """Return the CPU time of `work`; an error becomes the reason."""
        started = time.thread_time()
        try:
            work()
        except GrammarError as error:
            self.reason, self.is_done = str(error), True
        except Exception as error:
            _logger.exception("the mask of a grammar failed in a way that is no grammar's fault")
            self.reason, self.is_done = f"{type(error).__name__}: {error}", True
        seconds = time.thread_time() - started
        self.seconds += seconds
        return seconds

    def _read_on(self) -> None:
        self.is_read = self.follower.catch_up(SLICE_SECONDS)

    def _fill(self) -> None:
        matcher, row = self.follower.matcher, self.bits[:1]
        fill_next_token_bitmask(matcher, row)
        if matcher.is_error():
            reason = first_reason(matcher)
            if is_fault_of_output(reason):
                raise GrammarError(reason)
            fill_next_token_bitmask(self.follower.start_over(), row)

    def _fill_ahead(self) -> None:
        """Compute the masks behind allowed drafts; the follower stays where it is."""
        follower, until = self.follower, time.thread_time() + AHEAD_SECONDS
        try:
            for number, draft in enumerate(self.drafts, 1):
                began = time.thread_time()
                is_allowed = _allows(self.bits[number - 1], draft)
                if began > until or not is_allowed or not follower.go_ahead(draft):
                    return
                row = self.bits[number : number + 1]
                fill_next_token_bitmask(follower.matcher, row)
                if follower.matcher.is_error() or not row.any():
                    return
                self.num_masks += 1
                self.grammar.note_mask(time.thread_time() - began)
        finally:
            follower.go_back()


def _allows(mask: IntBits, token: int) -> bool:
    """Return whether a mask [words] allows a token."""
    word, bit = divmod(token, WORD_BITS)
    return bool(int(mask[word]) >> bit & 1)
