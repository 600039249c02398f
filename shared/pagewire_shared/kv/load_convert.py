"""Converts orders and answers of KV loads to and from messages."""

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as pb
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_names, pack_u32, unpack_names, unpack_u32
from pagewire_shared.kv.copies import MAX_STORES, BlockCopies
from pagewire_shared.kv.load import (
    LoadAnswer,
    LoadOrder,
    LoadOutcome,
    StorePart,
    WorkerSource,
)
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
        copies=None if order.copies is None else _copies_to_message(order.copies),
    )


def load_from_message(message: pb.LoadBlocks) -> LoadOrder:
    """Return the order in `message`. Raises WireError for arrays that contradict each other, or no
    time at all."""
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
        copies=_copies_from_message(message) if message.HasField("copies") else None,
    )


def _copies_to_message(copies: BlockCopies) -> pb.BlockCopies:
    return pb.BlockCopies(
        stores=copies.stores,
        holders=pack_u32(copies.holders),
        stripes=pack_u32(copies.stripes),
        tenant=copies.tenant or None,
    )


def _copies_from_message(message: pb.LoadBlocks) -> BlockCopies:
    copies, num_blocks = message.copies, len(message.names) // 16
    stores, holders = tuple(copies.stores), tuple(unpack_u32(copies.holders))
    stripes = tuple(unpack_u32(copies.stripes))
    if not 1 <= len(stores) <= MAX_STORES or len(set(stores)) < len(stores):
        raise WireError(f"1 to {MAX_STORES} stores, each once", field="copies.stores")
    if len(holders) != num_blocks or len(stripes) not in (0, num_blocks):
        raise WireError(f"holders and stripes of {num_blocks} blocks", field="copies.holders")
    if not all(0 < mask < 1 << len(stores) for mask in holders):
        raise WireError("each block is in one of the stores", field="copies.holders")
    return BlockCopies(stores, holders, stripes, copies.tenant)


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
        parts=map(_part_to_message, answer.parts),
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
        parts=tuple(map(_part_from_message, message.parts)),
    )


def _part_to_message(part: StorePart) -> pb.StorePart:
    return pb.StorePart(
        store=part.store,
        num_bytes=part.num_bytes,
        time_us=int(part.seconds * 1e6),
        outcome=_TO_WIRE[part.outcome],
        missing=pack_u32(part.missing),
    )


def _part_from_message(message: pb.StorePart) -> StorePart:
    return StorePart(
        store=message.store,
        num_bytes=message.num_bytes,
        seconds=message.time_us / 1e6,
        outcome=_FROM_WIRE.get(message.outcome, LoadOutcome.FAILED),
        missing=tuple(unpack_u32(message.missing)),
    )
