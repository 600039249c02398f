"""Turns the moments in a scheduler's timeline into plain data."""

from typing import Final

from pagewire_frontend.metrics.moments import MAX_MOMENTS, CellMoment, StoreRead
from pagewire_protos.common.v1 import timeline_pb2 as pb
from pagewire_shared.kv.transport_convert import transport_from_message

_MICROSECONDS: Final = 1e-6

_KINDS: dict[int, str] = {
    pb.MOMENT_KIND_PREFILL: "prefill",
    pb.MOMENT_KIND_LOAD: "load",
    pb.MOMENT_KIND_PAUSE: "pause",
    pb.MOMENT_KIND_DECODE: "decode",
}

_CAUSES: dict[int, str] = {
    pb.PAUSE_CAUSE_WORKER_LOST: "worker_lost",
    pb.PAUSE_CAUSE_PREEMPTED: "preempted",
    pb.PAUSE_CAUSE_MOVED: "moved",
}


def moments_of(message: pb.ChoiceTimeline) -> tuple[CellMoment, ...]:
    """Return the moments, without those of kinds that this version does not know."""
    if not message.moments:
        return ()
    known = (one for one in message.moments[:MAX_MOMENTS] if one.kind in _KINDS)
    return tuple(map(_moment, known))


def _moment(message: pb.TimelineMoment) -> CellMoment:
    transport = transport_from_message(message.transport) if message.HasField("transport") else None
    return CellMoment(
        kind=_KINDS[message.kind],
        began_at=message.offset_us * _MICROSECONDS,
        seconds=message.length_us * _MICROSECONDS,
        worker=message.worker_id.hex(),
        num_tokens=message.num_tokens,
        num_bytes=message.num_bytes,
        num_blocks=message.num_blocks,
        source=message.source_worker_id.hex(),
        transport=None if transport is None else transport.value,
        stores=tuple(
            StoreRead(
                address=one.address,
                seconds=one.length_us * _MICROSECONDS,
                num_bytes=one.num_bytes,
            )
            for one in message.stores
        ),
        tiers={one.tier: one.num_blocks for one in message.tiers},
        cause=_CAUSES.get(message.cause, ""),
    )
