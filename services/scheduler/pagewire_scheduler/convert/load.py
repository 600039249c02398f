"""Converts between messages about KV loads and the core's plain data."""

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_scheduler.core.data.kv_load import LoadAnswer, LoadOrder, LoadOutcome, WorkerSource
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import pack_names, pack_u32
from pagewire_shared.kv.tier import MAX_TIERS, RULE, is_tier_name
from pagewire_shared.kv.transport_convert import transport_from_message

_OUTCOMES = {
    pb.LOAD_OUTCOME_COMPLETE: LoadOutcome.COMPLETE,
    pb.LOAD_OUTCOME_MISSING: LoadOutcome.MISSING,
    pb.LOAD_OUTCOME_LATE: LoadOutcome.LATE,
    pb.LOAD_OUTCOME_FAILED: LoadOutcome.FAILED,
    pb.LOAD_OUTCOME_CANCELLED: LoadOutcome.CANCELLED,
}


def load_message(order: LoadOrder) -> pb.LoadBlocks:
    """Return the request to load blocks."""
    return pb.LoadBlocks(
        load_id=order.load_id,
        kvstore_address=order.store if order.worker is None else "",
        names=pack_names(order.names),
        blocks=pack_u32(order.blocks),
        timeout_ms=order.timeout_ms,
        worker=None if order.worker is None else _source_message(order.worker),
    )


def _source_message(source: WorkerSource) -> pb.WorkerSource:
    return pb.WorkerSource(address=source.address, worker_id=source.worker_id)


def load_answer(message: pb.BlocksLoaded) -> LoadAnswer:
    """Return the answer as plain data. Raises WireError when its tiers are invalid."""
    tiers = {entry.tier: entry.num_blocks for entry in message.tiers}
    if len(tiers) < len(message.tiers) or len(tiers) > MAX_TIERS:
        raise WireError(f"at most {MAX_TIERS} tiers, each once", field="tiers")
    if not all(map(is_tier_name, tiers)):
        raise WireError(f"tiers have names of {RULE}", field="tiers")
    if sum(tiers.values()) > message.num_blocks:
        raise WireError("more blocks came from tiers than came", field="tiers")
    return LoadAnswer(
        load_id=message.load_id,
        num_blocks=message.num_blocks,
        # An outcome that this version does not know is a failure, too.
        outcome=_OUTCOMES.get(message.outcome, LoadOutcome.FAILED),
        num_bytes=message.num_bytes,
        seconds=message.time_us / 1e6,
        tiers=tuple(tiers.items()),
        transport=(
            transport_from_message(message.transport) if message.HasField("transport") else None
        ),
        transfer_seconds=message.transfer_us / 1e6,
    )
