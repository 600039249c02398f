"""Which store a worker would load a run of blocks from, and whether it would at all."""

import math
from typing import Final

from pagewire_scheduler.core.costs.load_cost import LoadDecision, LoadReason, choose
from pagewire_scheduler.core.state.worker import WorkerState

NEVER: Final = -math.inf
"""A time at which nothing is tried again: what is left is what was measured."""


def choose_run(
    worker: WorkerState, runs: list[tuple[str, int]], now: float
) -> tuple[str, int, LoadDecision]:
    """Return what to do about the longest run, or the longest of a store that is not failing.

    Args:
        worker: Where the blocks would go.
        runs: (store, number of blocks), one at least, the longest first.
        now: Decides whether a slow or failing store is tried again.
    """
    loads, info = worker.loads, worker.info
    store, length, choice = *runs[0], LoadDecision(LoadReason.BROKEN)
    for store, length in runs:
        choice = choose(
            num_blocks=length,
            num_tokens=length * info.model.block_size,
            num_bytes=length * info.bytes_per_block,
            prefill=loads.prefill,
            link=loads.link(store),
            now=now,
            is_forced=loads.is_forced,
        )
        if choice.verdict is not LoadReason.BROKEN:
            break
    return store, length, choice
