"""Loads of blocks on the worker's stream: orders in, one answer out for each. Knows no store."""

import asyncio

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.arrays import unpack_names, unpack_u32
from pagewire_shared.errors import WireError
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.offload.load_order import LoadAnswer, LoadOrder, LoadOutcome

_OUTCOMES = {
    LoadOutcome.COMPLETE: wire.LOAD_OUTCOME_COMPLETE,
    LoadOutcome.MISSING: wire.LOAD_OUTCOME_MISSING,
    LoadOutcome.LATE: wire.LOAD_OUTCOME_LATE,
    LoadOutcome.FAILED: wire.LOAD_OUTCOME_FAILED,
    LoadOutcome.CANCELLED: wire.LOAD_OUTCOME_CANCELLED,
}


def take_load(
    message: wire.AttachWorkerResponse, offload: KvOffload
) -> "asyncio.Future[LoadAnswer] | None":
    """Do what a `load_blocks` or `cancel_load` says; return the answer to come for the former.

    Raises:
        WireError: The order contradicts the contract.
    """
    if message.WhichOneof("message") == "cancel_load":
        offload.cancel_load(message.cancel_load.load_id)
        return None
    return offload.begin_load(load_from_message(message.load_blocks))


def load_from_message(message: wire.LoadBlocks) -> LoadOrder:
    """Return the order in `message`. Raises WireError for torn arrays or no time at all."""
    if message.timeout_ms == 0:
        raise WireError("timeout_ms: a load needs time", field="timeout_ms")
    return LoadOrder(
        load_id=message.load_id,
        address=message.kvstore_address,
        names=unpack_names(message.names),
        blocks=unpack_u32(message.blocks),
        timeout_seconds=message.timeout_ms / 1000,
    )


def loaded_to_message(answer: LoadAnswer) -> wire.AttachWorkerRequest:
    """Return the answer to an order."""
    loaded = wire.BlocksLoaded(
        load_id=answer.load_id,
        num_blocks=answer.num_blocks,
        outcome=_OUTCOMES[answer.outcome],
        num_bytes=answer.num_bytes,
        time_us=int(answer.seconds * 1e6),
        tiers=[
            wire.LoadedFromTier(tier=tier, num_blocks=count) for tier, count in answer.tiers.items()
        ],
    )
    return wire.AttachWorkerRequest(blocks_loaded=loaded)
