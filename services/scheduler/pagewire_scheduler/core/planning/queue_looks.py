"""Tells queues what their first members wait for, at the end of a plan that passed them over."""

from pagewire_scheduler.core.data.queue_reasons import QueueReason
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.planning.schedule_waiting import MAX_BLOCKED
from pagewire_scheduler.core.state.request import Sequence


def note_reasons(builder: PlanBuilder) -> None:
    """Note the reason of the first in the queue, or of the first of each of some tenants."""
    waiting = builder.worker.waiting
    for index in range(min(waiting.num_parts, MAX_BLOCKED)):
        sequence = waiting.at(index)
        assert sequence is not None, "a part of a queue is empty"
        waiting.note_reason(sequence, _reason_of(builder, sequence))


def _reason_of(builder: PlanBuilder, sequence: Sequence) -> QueueReason:
    worker = builder.worker
    if worker.fault_isolation:
        return QueueReason.TRIAL
    if not builder.has_share(sequence) or _is_overtaken(builder, sequence):
        return QueueReason.TENANTS
    if builder.is_short or not worker.slots.num_free or worker.lacks_blocks(sequence):
        return QueueReason.CAPACITY
    is_over = builder.num_tokens_left <= 0 or builder.is_full
    if is_over or not builder.has_room_for(sequence):
        return QueueReason.STEP
    return QueueReason.CAPACITY


def _is_overtaken(builder: PlanBuilder, sequence: Sequence) -> bool:
    """Whether the youngest that runs came later and is of another tenant, although `sequence` was
    not passed for lack of room."""
    running, tenant = builder.worker.running, sequence.request.submission.tenant
    if not running or not builder.policy.shares_steps or sequence.fairness.num_skipped:
        return False
    youngest = running[-1]
    return youngest.key > sequence.key and youngest.request.submission.tenant != tenant
