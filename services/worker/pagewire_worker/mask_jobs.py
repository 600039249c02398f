"""One mask to compute, what it has cost, and what a request may cost. Starts no threads."""

import logging
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from llguidance.numpy import fill_next_token_bitmask

from pagewire_shared.grammar_source import first_reason, is_fault_of_output
from pagewire_worker.compiled_grammars import CompiledGrammar
from pagewire_worker.grammar_follower import GrammarError, GrammarFollower

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
    """What the slow masks of one request have cost, all its choices together.

    Attributes:
        seconds: CPU time.
        num_masks: How many there were.
    """

    seconds: float = 0.0
    num_masks: int = 0

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
        seconds: CPU time it has taken.
    """

    grammar: CompiledGrammar
    follower: GrammarFollower
    bits: IntBits
    bill: Bill
    reason: str | None = None
    is_done: bool = False
    is_dropped: bool = False
    seconds: float = 0.0

    def advance(self) -> float:
        """Read on in the output for a while, and compute the mask where its end is reached.

        Return the CPU time spent reading: that much holds the interpreter lock.
        """
        started = read = time.thread_time()
        try:
            is_at_end = self.follower.catch_up(SLICE_SECONDS)
            read = time.thread_time()
            if is_at_end:
                self._fill()
                self.is_done = True
        except GrammarError as error:
            self.reason, self.is_done = str(error), True
        except Exception as error:
            _logger.exception("the mask of a grammar failed in a way that is no grammar's fault")
            self.reason, self.is_done = f"{type(error).__name__}: {error}", True
        ended = time.thread_time()
        self.seconds += ended - started
        if self.is_done:
            self.grammar.note_mask(ended - read)
        return read - started

    def charge(self) -> None:
        """Put what it has cost on the bill; one that is exceeded leaves no mask."""
        self.bill.seconds += self.seconds
        self.bill.num_masks += self.is_done
        self.seconds = 0.0
        if self.bill.is_exceeded:
            self.reason, self.is_done = self.bill.reason, True

    def _fill(self) -> None:
        matcher, row = self.follower.matcher, self.bits[np.newaxis]
        fill_next_token_bitmask(matcher, row)
        if matcher.is_error():
            reason = first_reason(matcher)
            if is_fault_of_output(reason):
                raise GrammarError(reason)
            fill_next_token_bitmask(self.follower.start_over(), row)
