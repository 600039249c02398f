"""Converts the core's timelines of choices to messages."""

from collections.abc import Iterator, Sequence
from typing import Final

from pagewire_protos.common.v1 import timeline_pb2, usage_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.core.data.events import TimelineEvent
from pagewire_scheduler.core.data.moments import Moment, MomentKind, PauseCause
from pagewire_scheduler.core.data.queue_reasons import QueueReason, Waits
from pagewire_scheduler.core.data.timeline import Timeline
from pagewire_shared.kv.transport_convert import transport_to_message

MICROSECONDS = 1e6


TIMELINES_PER_MESSAGE: Final = 4096
"""About a quarter of a megabyte: a timeline takes some tens of bytes."""


def timeline_batches(events: Sequence[TimelineEvent]) -> Iterator[pb.TimelineBatch]:
    """Yield the timelines in `events`, in messages of a bounded size."""
    for start in range(0, len(events), TIMELINES_PER_MESSAGE):
        yield timeline_batch(events[start : start + TIMELINES_PER_MESSAGE])


def timeline_batch(events: Sequence[TimelineEvent]) -> pb.TimelineBatch:
    """Return the timelines in `events`."""
    return pb.TimelineBatch(
        timelines=[
            pb.HandleTimeline(
                handle=event.handle,
                choice=event.choice,
                epoch=event.epoch,
                timeline=_timeline(event.timeline),
            )
            for event in events
        ]
    )


def _timeline(timeline: Timeline) -> timeline_pb2.ChoiceTimeline:
    transport = timeline.transport
    return timeline_pb2.ChoiceTimeline(
        queue_us=microseconds(timeline.queue_seconds),
        queue_waits=list(_waits(timeline.queue_waits)),
        paused_us=microseconds(timeline.paused_seconds),
        prefill_us=microseconds(timeline.prefill_seconds),
        transfer_us=microseconds(timeline.transfer_seconds),
        transfer_bytes=timeline.transfer_bytes,
        transport=None if transport is None else transport_to_message(transport),
        num_preemptions=timeline.num_preemptions,
        num_migrations=timeline.num_migrations,
        num_recoveries=timeline.num_recoveries,
        is_handed_off=timeline.is_handed_off,
        cached_tokens=[
            usage_pb2.CachedTokens(tier=tier, num_tokens=num_tokens)
            for tier, num_tokens in timeline.cached_tokens
        ],
        moments=[_moment(since, moment) for since, moment in timeline.moments],
    )


_KINDS: Final = {
    MomentKind.PREFILL: timeline_pb2.MOMENT_KIND_PREFILL,
    MomentKind.LOAD: timeline_pb2.MOMENT_KIND_LOAD,
    MomentKind.PAUSE: timeline_pb2.MOMENT_KIND_PAUSE,
    MomentKind.DECODE: timeline_pb2.MOMENT_KIND_DECODE,
}

_CAUSES: Final = {
    None: timeline_pb2.PAUSE_CAUSE_UNSPECIFIED,
    PauseCause.WORKER_LOST: timeline_pb2.PAUSE_CAUSE_WORKER_LOST,
    PauseCause.PREEMPTED: timeline_pb2.PAUSE_CAUSE_PREEMPTED,
    PauseCause.MOVED: timeline_pb2.PAUSE_CAUSE_MOVED,
}


def _moment(ended: float, moment: Moment) -> timeline_pb2.TimelineMoment:
    transport = moment.transport
    return timeline_pb2.TimelineMoment(
        kind=_KINDS[moment.kind],
        offset_us=microseconds(ended - moment.seconds),
        length_us=microseconds(moment.seconds),
        worker_id=moment.worker_id,
        num_tokens=moment.num_tokens,
        num_bytes=moment.num_bytes,
        num_blocks=moment.num_blocks,
        transport=None if transport is None else transport_to_message(transport),
        source_worker_id=moment.source_id,
        stores=[
            timeline_pb2.StoreShare(
                address=address, length_us=microseconds(seconds), num_bytes=num_bytes
            )
            for address, seconds, num_bytes in moment.stores
        ],
        tiers=[
            timeline_pb2.TierShare(tier=tier, num_blocks=num_blocks)
            for tier, num_blocks in moment.tiers
        ],
        cause=_CAUSES[moment.cause],
    )


_REASONS: Final = {
    QueueReason.CAPACITY: timeline_pb2.QUEUE_REASON_CAPACITY,
    QueueReason.WORKER: timeline_pb2.QUEUE_REASON_WORKER,
    QueueReason.SLEEP: timeline_pb2.QUEUE_REASON_SLEEP,
    QueueReason.TENANTS: timeline_pb2.QUEUE_REASON_TENANTS,
    QueueReason.STEP: timeline_pb2.QUEUE_REASON_STEP,
    QueueReason.ADAPTER: timeline_pb2.QUEUE_REASON_ADAPTER,
    QueueReason.GRAMMAR: timeline_pb2.QUEUE_REASON_GRAMMAR,
    QueueReason.TRIAL: timeline_pb2.QUEUE_REASON_TRIAL,
}


def _waits(waits: Waits) -> Iterator[timeline_pb2.QueueWait]:
    for reason, number in _REASONS.items():
        wait_us = microseconds(waits[reason.value])
        if wait_us:
            yield timeline_pb2.QueueWait(reason=number, wait_us=wait_us)


def microseconds(seconds: float) -> int:
    """Return a duration in microseconds, at least 0: messages have unsigned fields."""
    return max(0, round(seconds * MICROSECONDS))
