"""Answers orders to load an adapter, each with one message."""

import logging
from collections.abc import Sequence

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.rpc.errors import to_detail
from pagewire_worker.adapters.loader import AdapterLoader, AdapterOrder
from pagewire_worker.link.adapter_client import fetch_adapter

_logger = logging.getLogger(__name__)


async def answer_adapter(
    message: wire.LoadAdapter, loader: AdapterLoader | None, stores: Sequence[str]
) -> wire.AttachWorkerRequest:
    """Load the adapter in `message` and return the answer; without a loader a refusal.

    Args:
        stores: Addresses of the KV stores in the welcome.
    """
    order = AdapterOrder(
        adapter_id=message.adapter_id,
        slot=message.adapter_slot,
        sources=tuple(message.sources),
        timeout_seconds=message.timeout_ms / 1000,
        stores=tuple(stores),
    )
    loaded = wire.AdapterLoaded(load_id=message.load_id)
    try:
        if loader is None:
            raise InvalidRequestError("this worker takes no adapters", field="adapter_id")
        loaded.was_warm = await loader.load(order, fetch_adapter)
    except PagewireError as error:
        _logger.warning("adapter %s: %s", message.adapter_id.hex()[:16], error)
        loaded.error.CopyFrom(to_detail(error))
    return wire.AttachWorkerRequest(adapter_loaded=loaded)
