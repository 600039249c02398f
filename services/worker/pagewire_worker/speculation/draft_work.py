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

_logger = logging.getLogger(__name__)

Chosen = tuple[int, ...]
"""Index among those asked for, slot, more columns, end of the tokens, room for drafts."""


class DraftWork:
    """Runs the work.

    Args:
        name: What drafts, for the log.
        blocks: Where its tokens and blocks are.
        seconds: Time of one more draft for all sequences, as it was measured.
        clock: Seconds, as time.perf_counter.

    Attributes:
        is_broken: Whether work has failed: there are no drafts from then on.
        seconds: Mean time of one more draft for all sequences.
    """

    def __init__(
        self, name: str, blocks: DraftBlocks, seconds: float, clock: Callable[[], float]
    ) -> None:
        self.is_broken = False
        self.seconds = seconds
        self._name = name
        self._blocks = blocks
        self._clock = clock

    def run(self, work: Callable[[], None]) -> None:
        """Do `work`, unless some has failed before. The target does not need drafts."""
        if self.is_broken:
            return
        try:
            with torch.inference_mode():
                work()
        except Exception:
            self.is_broken = True
            self._blocks.clear()
            _logger.exception("the %s failed; there are no drafts from now on", self._name)

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
