"""Handles orders to load blocks, with one answer each, and questions for digests of blocks.

The loads themselves are run by KvOffload (stores) and KvTransfer (workers).
"""

import asyncio
from collections.abc import Sequence

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import unpack_names
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_shared.kv.load_convert import load_from_message
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.transfer.block_digests import DIGEST_BYTES
from pagewire_worker.transfer.kv_transfer import KvTransfer


def take_load(
    message: wire.AttachWorkerResponse, offload: KvOffload | None, transfer: KvTransfer | None
) -> "asyncio.Future[LoadAnswer] | None":
    """Execute a `load_blocks` or `cancel_load`; return the future answer of a `load_blocks`.

    Args:
        message: From the scheduler.
        offload: Loads from stores; None if that is off.
        transfer: Loads from workers; None if that is off.

    Raises:
        WireError: The order contradicts the contract.
    """
    both = [one for one in (offload, transfer) if one is not None]
    if message.WhichOneof("message") == "cancel_load":
        for one in both:
            one.loads.cancel(message.cancel_load.load_id)
        return None
    order = load_from_message(message.load_blocks)
    if any(one.loads.holds(order.load_id) for one in both):
        raise WireError(f"load_id: {order.load_id} is under way", field="load_id")
    source = offload if order.worker is None else transfer
    if source is None:
        return _failed(order)
    return source.begin_load(order)


def _failed(order: LoadOrder) -> "asyncio.Future[LoadAnswer]":
    """Answer an order for a source that is off, and that the hello never offered."""
    answer = asyncio.get_running_loop().create_future()
    answer.set_result(LoadAnswer(order.load_id, 0, LoadOutcome.FAILED))
    return answer


def query_from_message(message: wire.BlockDigestQuery, num_blocks: int) -> list[bytes]:
    """Return the names of a question for digests.

    Raises WireError for more names than blocks, or for torn ones.
    """
    names = unpack_names(message.names)
    if len(names) > num_blocks:
        raise WireError(f"names: {len(names)}, and the pool has {num_blocks} blocks", field="names")
    return names


async def answer_digests(
    query_id: int, names: Sequence[bytes], transfer: KvTransfer | None
) -> wire.AttachWorkerRequest:
    """Return the answer to a question for digests; zeros if blocks stay in the worker."""
    digests = [bytes(DIGEST_BYTES)] * len(names)
    if transfer is not None:
        digests = await transfer.digests(names)
    answer = wire.BlockDigests(query_id=query_id, digests=b"".join(digests))
    return wire.AttachWorkerRequest(block_digests=answer)
