"""Queues a sequence on the worker that it was placed on: for slots and blocks, or until its grammar
has been compiled there."""

from collections.abc import Iterator
from itertools import chain

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.queueing.losses import is_suspect
from pagewire_scheduler.core.state.fault_isolation import unit_of
from pagewire_scheduler.core.state.grammars import GrammarId, Key
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams


def enqueue(worker: WorkerState, sequence: Sequence) -> None:
    """Let a sequence that holds nothing wait on `worker`."""
    sequence.begin_stay(worker)
    requeue(worker, sequence)


def requeue(worker: WorkerState, sequence: Sequence) -> None:
    """Let a sequence that was placed on `worker` before wait for slots and blocks there."""
    key, grammar = sequence.request.grammar_key, sequence.request.grammar
    is_prefill = sequence.is_prefill  # and samples nothing
    if key is None or grammar is None or is_prefill or worker.grammars.is_ready(key):
        wait_for_room(worker, sequence)
        return
    worker.grammars.request_compile(key, grammar)
    worker.touch()
    if sequence.state is not State.WAITING:
        sequence.advance(State.WAITING)  # preempted elsewhere, and taken over from there
    sequence.advance(State.WAITING_FOR_GRAMMAR)
    worker.aside.compiling.push(sequence)


def take_compiling(worker: WorkerState) -> list[Sequence]:
    """Take out the sequences that wait for grammars, in order, and move them to WAITING."""
    taken = sorted(worker.aside.compiling, key=lambda sequence: sequence.key)
    for sequence in taken:
        worker.aside.compiling.remove(sequence)
        sequence.advance(State.WAITING)
    return taken


def pop_requests(worker: WorkerState) -> list[tuple[GrammarId, StructuredOutputsParams]]:
    """Return the grammars that `worker` is to compile now."""
    grammars = worker.grammars
    return grammars.pop_requests(set(_keys_in_use(worker))) if grammars.is_asking else []


def take_compiled(
    worker: WorkerState, grammar_id: GrammarId, *, is_compiled: bool
) -> list[Sequence]:
    """Take the answer about a grammar; its sequences now wait for slots.

    Returns the sequences of a grammar that does not compile, still in their queue.
    """
    key = worker.grammars.answer(grammar_id, is_compiled=is_compiled)
    if key is None:
        return []
    waited = [one for one in worker.aside.compiling if one.request.grammar_key == key]
    waited.sort(key=lambda sequence: sequence.key)
    if not is_compiled:
        return waited
    for sequence in waited:
        worker.aside.compiling.remove(sequence)
        sequence.advance(State.WAITING)
        wait_for_room(worker, sequence)
    worker.grammars.release_unused(_keys_in_use(worker))
    return []


def wait_for_room(worker: WorkerState, sequence: Sequence) -> None:
    """Let a WAITING sequence wait for slots and blocks, or first for its adapter."""
    push_waiting(worker, sequence)
    worker.touch()
    # Not before: while a suspect is tried no other sequence is started.
    if sequence.placement.queue is worker.waiting and is_suspect(sequence.request):
        worker.fault_isolation.mark_suspect(unit_of(sequence), sequence.request.num_together)


def _keys_in_use(worker: WorkerState) -> Iterator[Key]:
    aside = worker.aside
    for sequence in chain(worker.running, worker.waiting, *aside.queues, aside.returning):
        if sequence.request.grammar_key is not None:
            yield sequence.request.grammar_key
