"""Answers of workers on which sequences wait: compiled grammars and loaded adapters. An error ends
the sequences that waited for it, and no others."""

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.adapter_slots import take_loaded
from pagewire_scheduler.core.queueing.enqueue import take_compiled
from pagewire_scheduler.core.results.finish import end_with_followers
from pagewire_scheduler.core.state.grammars import GrammarId
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import give_up_source
from pagewire_shared.errors import PagewireError


def take_grammar(
    worker: WorkerState, grammar_id: GrammarId, error: PagewireError | None
) -> list[Sequence]:
    """Take the answer about a grammar; return the sequences that it ended."""
    ended: list[Sequence] = []
    for sequence in take_compiled(worker, grammar_id, is_compiled=error is None):
        ended.extend(end_with_followers(sequence, State.FINISHED_FAILED, error))
    return ended


def take_adapter(
    worker: WorkerState, load_id: int, error: PagewireError | None, now: float
) -> list[Sequence]:
    """Take the answer to the load of an adapter; return the sequences that it ended.

    Prefills for another worker are given up without failing a request.
    """
    ended: list[Sequence] = []
    for sequence in take_loaded(worker, load_id, is_loaded=error is None):
        if sequence.is_prefill:
            # The sequence that waits for the blocks computes them.
            give_up_source(worker.handoffs.prefills[sequence], now)
        else:
            ended.extend(end_with_followers(sequence, State.FINISHED_FAILED, error))
    return ended
