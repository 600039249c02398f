"""The work of a model or head that computes drafts: how long it takes, and that it may fail without
the target. Shared by all that compute drafts into DraftBlocks."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch

from pagewire_shared.kv.arrays import Int64Array
from pagewire_worker.speculation.draft_blocks import DraftBlocks
from pagewire_worker.speculation.proposer import Drafts

WEIGHT: Final = 0.1
"""Of a new measurement in a mean."""
FIRST_REST_SECONDS: Final = 10.0
LONGEST_REST_SECONDS: Final = 3600.0

_logger = logging.getLogger(__name__)

Chosen = tuple[int, ...]
"""Index among those asked for, slot, more columns, end of the tokens, room for drafts."""


class DraftWork:
    """Runs the work. Where some fails, such as for memory, there are no drafts for a while, which
    is twice as long each time.

    Args:
        name: What drafts, for the log.
        blocks: Where its tokens and blocks are.
        forget: Forgets all sequences; called where work fails, which may leave anything behind.
        seconds: Time of one more draft for all sequences, as it was measured.
        clock: Seconds, as time.perf_counter.

    Attributes:
        seconds: Mean time of one more draft for all sequences.
    """

    def __init__(
        self,
        name: str,
        blocks: DraftBlocks,
        *,
        forget: Callable[[], None],
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.seconds = seconds
        self._name = name
        self._blocks = blocks
        self._forget = forget
        self._clock = clock
        self._rest_seconds = FIRST_REST_SECONDS
        self._rests_until: float | None = None

    @property
    def rests(self) -> bool:
        """Whether work has failed lately."""
        return self._rests_until is not None and self._clock() < self._rests_until

    def run(self, work: Callable[[], None]) -> None:
        """Do `work`, unless it rests. The target does not need drafts."""
        if self.rests:
            return
        try:
            with torch.inference_mode():
                work()
        except Exception:
            seconds = self._rest_seconds
            self._rests_until = self._clock() + seconds
            self._rest_seconds = min(2 * seconds, LONGEST_REST_SECONDS)
            self._forget()
            _logger.exception("the %s failed; there are no drafts for %.0f s", self._name, seconds)

    def draft(
        self,
        chosen: Sequence[Chosen],
        write: Callable[..., None],
        found: list[Drafts],
    ) -> None:
        """Have `write` compute the drafts of `chosen`, and put them into `found`.

        Args:
            write: Takes the columns of `chosen` but the first, [n] each, and writes drafts behind
                the ends of the slots' tokens.
        """
        if not chosen:
            return
        columns: list[Int64Array] = list(np.array(chosen, dtype=np.int64).T)
        began = self._clock()
        write(*columns[1:])
        seconds = (self._clock() - began) / int(columns[-1].max())
        self.seconds += WEIGHT * (seconds - self.seconds)
        for index, slot, *_, end, room in chosen:
            drafts: list[int] = self._blocks.tokens[slot, end : end + room].tolist()
            found[index] = drafts
