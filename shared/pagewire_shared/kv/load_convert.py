"""Converts orders and answers of KV loads to and from messages."""

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_names, pack_u32, unpack_names, unpack_u32
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome, WorkerSource
from pagewire_shared.kv.tier import MAX_TIERS, RULE, is_tier_name
from pagewire_shared.kv.transport_convert import transport_from_message, transport_to_message

_TO_WIRE = {
    LoadOutcome.COMPLETE: pb.LOAD_OUTCOME_COMPLETE,
    LoadOutcome.MISSING: pb.LOAD_OUTCOME_MISSING,
    LoadOutcome.LATE: pb.LOAD_OUTCOME_LATE,
    LoadOutcome.FAILED: pb.LOAD_OUTCOME_FAILED,
    LoadOutcome.CANCELLED: pb.LOAD_OUTCOME_CANCELLED,
}
_FROM_WIRE: dict[int, LoadOutcome] = {number: outcome for outcome, number in _TO_WIRE.items()}


def load_to_message(order: LoadOrder) -> pb.LoadBlocks:
    """Return the request to load blocks."""
    source = order.worker
    return pb.LoadBlocks(
        load_id=order.load_id,
        kvstore_address=order.store if source is None else "",
        names=pack_names(order.names),
        blocks=pack_u32(order.blocks),
        timeout_ms=order.timeout_ms,
        worker=(
            pb.WorkerSource(address=source.address, worker_id=source.worker_id) if source else None
        ),
    )


def load_from_message(message: pb.LoadBlocks) -> LoadOrder:
    """Return the order in `message`. Raises WireError for torn arrays or no time at all."""
    if message.timeout_ms == 0:
        raise WireError("timeout_ms: a load needs time", field="timeout_ms")
    source = message.worker
    return LoadOrder(
        load_id=message.load_id,
        store=message.kvstore_address,
        names=[BlockName(name) for name in unpack_names(message.names)],
        blocks=unpack_u32(message.blocks),
        timeout_ms=message.timeout_ms,
        worker=(
            WorkerSource(source.address, source.worker_id) if message.HasField("worker") else None
        ),
    )


def loaded_to_message(answer: LoadAnswer) -> pb.BlocksLoaded:
    """Return the answer to an order."""
    loaded = pb.BlocksLoaded(
        load_id=answer.load_id,
        num_blocks=answer.num_blocks,
        outcome=_TO_WIRE[answer.outcome],
        num_bytes=answer.num_bytes,
        time_us=int(answer.seconds * 1e6),
        tiers=[pb.LoadedFromTier(tier=tier, num_blocks=count) for tier, count in answer.tiers],
        transfer_us=int(answer.transfer_seconds * 1e6),
    )
    if answer.transport is not None:
        loaded.transport = transport_to_message(answer.transport)
    return loaded


def loaded_from_message(message: pb.BlocksLoaded) -> LoadAnswer:
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
        outcome=_FROM_WIRE.get(message.outcome, LoadOutcome.FAILED),
        num_bytes=message.num_bytes,
        seconds=message.time_us / 1e6,
        tiers=tuple(tiers.items()),
        transport=(
            transport_from_message(message.transport) if message.HasField("transport") else None
        ),
        transfer_seconds=message.transfer_us / 1e6,
    )
