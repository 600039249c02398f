"""One mask to compute, what it has cost, and what a request may cost. Starts no threads.

Where a job is computed depends on what masks have cost before, and never what comes of it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from llguidance.numpy import fill_next_token_bitmask

from pagewire_shared.sampling.grammar_source import first_reason, is_fault_of_output
from pagewire_worker.grammars.compiled import CompiledGrammar
from pagewire_worker.grammars.mask_credit import PROVEN_MASKS, Credit
from pagewire_worker.grammars.matcher import GrammarError, GrammarMatcher

_logger = logging.getLogger(__name__)

CREDIT_SECONDS = 5.0
"""CPU time that the slow masks of a request may take in all, and"""

MASK_SECONDS = 0.005
"""beyond that for each of them: an average, then."""

SLICE_SECONDS = 0.005
"""CPU time after which reading an output from its start lets others have a turn."""

IntBits = npt.NDArray[np.int32]


@dataclass(slots=True, weakref_slot=True, eq=False)
class Bill:
    """What the masks of one request have cost, all its choices together.

    Attributes:
        credit: Of its tenant.
        cheap_seconds: CPU time that one may take for nothing.
        seconds: CPU time of the slow ones.
        num_masks: How many of those there were.
        excess_seconds: CPU time of all beyond cheap ones.
        num_all: How many there were in all.
    """

    credit: Credit
    cheap_seconds: float
    seconds: float = 0.0
    num_masks: int = 0
    excess_seconds: float = 0.0
    num_all: int = 0

    @property
    def is_proven(self) -> bool:
        """Whether its masks have been cheap so far, or next to it."""
        is_known = self.num_all >= PROVEN_MASKS
        return is_known and self.excess_seconds <= self.num_all * self.cheap_seconds

    @property
    def is_exceeded(self) -> bool:
        """Whether it has cost more than a request may."""
        return self.seconds > CREDIT_SECONDS + MASK_SECONDS * self.num_masks

    @property
    def reason(self) -> str:
        """Why the request ends, in one line."""
        return (
            f"the grammar is too costly to follow: {self.seconds:.1f} s of CPU time for "
            f"{self.num_masks} tokens; make it less ambiguous, or the output shorter"
        )


@dataclass(slots=True, eq=False)
class MaskJob:
    """The mask behind an output.

    Attributes:
        grammar: The grammar.
        follower: The output; nobody changes it while the job is under way.
        bits: [words] where the mask is put.
        bill: Of the request.
        reason: Why there is no mask and never will be; None as long as nothing is wrong.
        is_done: Whether there is a mask, or a reason.
        is_dropped: Whether nobody wants it any more.
        is_slow: Whether it is one that a step does not wait for.
        is_read: Whether its output is read to its end, and only the mask is left to compute.
        seconds: CPU time it has taken, and
        charged: how much of that is charged.
    """

    grammar: CompiledGrammar
    follower: GrammarMatcher
    bits: IntBits
    bill: Bill
    reason: str | None = None
    is_done: bool = False
    is_dropped: bool = False
    is_slow: bool = False
    is_read: bool = False
    seconds: float = 0.0
    charged: float = 0.0

    @property
    def has_others(self) -> bool:
        """Whether others would notice what it takes."""
        return self.bill.credit.has_others(time.monotonic())

    def find_pace(self) -> bool:
        """Set and return `is_slow`, by what is known by now; it does not change back."""
        if not self.is_slow:
            is_allowed = self.bill.credit.allows(time.monotonic(), is_proven=self.bill.is_proven)
            self.is_slow = self.grammar.is_slow or not is_allowed
        return self.is_slow

    def read(self) -> float:
        """Read on in the output for a while.

        Return the CPU time: that much holds the interpreter lock.
        """
        return self._run(self._read_on)

    def fill(self) -> float:
        """Compute the mask behind an output that was read. Return the CPU time."""
        seconds = self._run(self._fill)
        self.grammar.note_mask(seconds)
        self.is_done = True
        return seconds

    def charge(self, *, is_fast: bool) -> None:
        """Put what it has taken since the last call on the bill, or on the tenant's credit where it
        was computed at full priority; a bill that is exceeded leaves no mask.

        Calls for all jobs are made under one lock.
        """
        bill, free = self.bill, self.bill.cheap_seconds
        excess = max(0.0, self.seconds - free)
        if is_fast:
            bill.credit.charge(excess - max(0.0, self.charged - free), time.monotonic())
        else:
            bill.seconds += self.seconds - self.charged
            bill.num_masks += self.is_done
        self.charged = self.seconds
        if self.is_done:
            bill.num_all += 1
            bill.excess_seconds += excess
        if not is_fast and bill.is_exceeded:
            self.reason, self.is_done = bill.reason, True

    def _run(self, work: Callable[[], None]) -> float:
        """Return the CPU time of `work`, which leaves a reason where it fails."""
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
        matcher, row = self.follower.matcher, self.bits[np.newaxis]
        fill_next_token_bitmask(matcher, row)
        if matcher.is_error():
            reason = first_reason(matcher)
            if is_fault_of_output(reason):
                raise GrammarError(reason)
            fill_next_token_bitmask(self.follower.start_over(), row)
