"""Fails sequences that a worker reports as broken (numbers that are not finite) in a step that is
valid for all others. Hashes of blocks that they computed are dropped from the prefix cache."""

from collections.abc import Iterable

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.results.finish import end_sequence
from pagewire_scheduler.core.state.fault_isolation import Unit, sequences_of, unit_of
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import give_up_source
from pagewire_shared.errors import InternalError


def broken_units(step: OutstandingStep, slots: Iterable[int]) -> set[Unit]:
    """Return the live units in the broken `slots` of a step."""
    wanted = set(slots)
    return {
        unit_of(sequence)
        for sequence, slot in zip(step.sequences, step.plan.slots, strict=True)
        if slot in wanted and not sequence.state.is_finished
    }


def have_shared(worker: WorkerState, step: OutstandingStep, units: set[Unit]) -> bool:
    """Return whether others may have read blocks that `units` name in `step` or later ones."""
    return any(block in worker.pool.shared_early for _, block in _named_by(worker, step, units))


def fail_units(
    worker: WorkerState, units: Iterable[Unit], message: str, now: float
) -> list[Sequence]:
    """End the sequences of `units` with an error, and return them. Prefills for another worker
    are given up without failing a request."""
    failed = []
    for unit in units:
        for sequence in sequences_of(unit):
            if sequence.is_prefill:
                # The sequence that waits for the blocks computes them.
                give_up_source(worker.handoffs.prefills[sequence], now)
                continue
            end_sequence(sequence, State.FINISHED_FAILED, InternalError(message))
            failed.append(sequence)
    return failed


def forget_names(worker: WorkerState, step: OutstandingStep, units: set[Unit]) -> None:
    """Forget the names that `units` have given in `step` and in later ones under way."""
    for step_id, block in _named_by(worker, step, units):
        worker.pool.unname(block)
        worker.void_names.steps[block] = step_id


def _named_by(
    worker: WorkerState, step: OutstandingStep, units: set[Unit]
) -> list[tuple[int, int]]:
    """Return (step, block) of names that are not VALID yet; `step` has been taken from the
    outstanding ones."""
    found = []
    for one in (step, *worker.outstanding):
        slots = {
            slot
            for sequence, slot in zip(one.sequences, one.plan.slots, strict=True)
            if unit_of(sequence) in units
        }
        for block, slot in zip(one.plan.named_blocks, one.plan.named_slots, strict=True):
            if slot in slots and worker.pool.pending_steps[block] == one.step_id:
                found.append((one.step_id, block))
    return found
