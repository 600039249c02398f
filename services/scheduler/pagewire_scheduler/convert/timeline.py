"""Converts the core's timelines of choices to messages."""

from collections.abc import Iterator, Sequence
from typing import Final

from pagewire_protos.common.v1 import timeline_pb2, usage_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_scheduler.core.data.events import TimelineEvent
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
    )


def microseconds(seconds: float) -> int:
    """Return a duration in microseconds, at least 0: messages have unsigned fields."""
    return max(0, round(seconds * MICROSECONDS))
