"""From the messages of a scheduler about timelines to plain data."""

from collections.abc import Iterator

from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.scheduler.convert import cached_tiers
from pagewire_protos.common.v1 import timeline_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.kv.transport_convert import transport_from_message

MICROSECONDS = 1e-6


def timelines(batch: pb.TimelineBatch) -> Iterator[tuple[int, int, int, CellTimeline]]:
    """Yield (handle, epoch, choice, timeline). Raises WireError for a tier that is there twice."""
    for item in batch.timelines:
        yield item.handle, item.epoch, item.choice, _timeline(item.timeline)


def _timeline(message: timeline_pb2.ChoiceTimeline) -> CellTimeline:
    # One that this version does not know is not named.
    transport = transport_from_message(message.transport) if message.HasField("transport") else None
    return CellTimeline(
        queue_seconds=message.queue_us * MICROSECONDS,
        prefill_seconds=message.prefill_us * MICROSECONDS,
        transfer_seconds=message.transfer_us * MICROSECONDS,
        transfer_bytes=message.transfer_bytes,
        transport=None if transport is None else transport.value,
        num_preemptions=message.num_preemptions,
        num_migrations=message.num_migrations,
        is_handed_off=message.is_handed_off,
        cached_tiers=cached_tiers(message),
    )
