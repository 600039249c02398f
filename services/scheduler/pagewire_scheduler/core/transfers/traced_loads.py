"""Notes the loads that sequences have waited for, in their times and for traces."""

from pagewire_scheduler.core.data.moments import Moment, MomentKind
from pagewire_scheduler.core.state.kv_load import KvLoad
from pagewire_scheduler.core.state.request import Sequence
from pagewire_shared.kv.load import LoadAnswer


def note_load(
    worker_id: bytes,
    sequence: Sequence,
    load: KvLoad,
    answer: LoadAnswer,
    *,
    exposed: float,
    now: float,
) -> None:
    """Note a load that a sequence has waited for.

    Args:
        exposed: Seconds of it in which nothing was computed for the sequence.
    """
    sequence.times.note_transfer(exposed, answer.num_bytes, answer.transport)
    moments, order = sequence.request.moments, load.order
    if moments is None:
        return
    stores: tuple[tuple[str, float, int], ...] = ((order.store, answer.seconds, answer.num_bytes),)
    if order.worker is not None:
        stores = ()
    elif order.copies is not None and answer.parts:
        addresses = order.copies.stores
        stores = tuple(
            (addresses[part.store], part.seconds, part.num_bytes) for part in answer.parts
        )
    moments.add(
        Moment(
            kind=MomentKind.LOAD,
            choice=sequence.choice,
            ended_at=now,
            seconds=answer.seconds,
            worker_id=worker_id,
            num_bytes=answer.num_bytes,
            num_blocks=answer.num_blocks,
            transport=answer.transport,
            source_id=b"" if order.worker is None else order.worker.worker_id,
            stores=stores,
            tiers=answer.tiers,
        )
    )
