"""Converts what messages say about adapters: in submissions, hellos, loads and their answers."""

from typing import Final

from pagewire_protos.common.v1.adapter_shapes_pb2 import AdapterShapes
from pagewire_protos.scheduler.v1 import frontend_attach_pb2, worker_attach_pb2
from pagewire_scheduler.core.data.worker_info import ModelInfo
from pagewire_scheduler.core.queueing.adapter_slots import MAX_SOURCES
from pagewire_scheduler.core.state.adapters import MAX_WARM, SlotLoad
from pagewire_shared.adapters.content_id import ADAPTER_ID_BYTES
from pagewire_shared.adapters.shapes_convert import shapes_from_message
from pagewire_shared.errors import InvalidRequestError, PagewireError, PeerRefusedError, WireError
from pagewire_shared.rpc.errors import from_detail

MAX_ADAPTERS: Final = 1024
"""Adapter slots of a worker."""

LOAD_SECONDS: Final = 60.0
"""Seconds after which a worker gives a load up."""

MAX_SOURCE_CHARS: Final = 1024
"""Longest source of an adapter."""


def adapter_of(message: frontend_attach_pb2.Submit) -> bytes:
    """Return the adapter of a request; empty for none.

    Raises:
        InvalidRequestError: It is not an identity of an adapter.
    """
    if message.HasField("adapter") and len(message.adapter) != ADAPTER_ID_BYTES:
        raise InvalidRequestError(
            f"the id of an adapter has {ADAPTER_ID_BYTES} bytes, not {len(message.adapter)}",
            field="adapter",
        )
    return message.adapter


def adapter_sources(message: frontend_attach_pb2.Submit) -> tuple[str, ...]:
    """Return where the content of the adapter may be read.

    Raises:
        InvalidRequestError: They are too many, or too long.
    """
    sources = tuple(message.adapter_sources) if message.adapter else ()
    if len(sources) > MAX_SOURCES or any(len(one) > MAX_SOURCE_CHARS for one in sources):
        raise InvalidRequestError(
            f"at most {MAX_SOURCES} sources of {MAX_SOURCE_CHARS} characters",
            field="adapter_sources",
        )
    return sources


def num_adapter_slots(capacity: worker_attach_pb2.WorkerCapacity) -> int:
    """Return the adapter slots of a worker. Raises PeerRefusedError when there are too many."""
    if capacity.max_adapters > MAX_ADAPTERS:
        raise PeerRefusedError(
            f"max_adapters must be at most {MAX_ADAPTERS}, not {capacity.max_adapters}",
            field="max_adapters",
        )
    return capacity.max_adapters


def warm_adapters(packed: bytes) -> tuple[bytes, ...]:
    """Return the adapters in a worker's memory, at most MAX_WARM. Raises PeerRefusedError."""
    if len(packed) % ADAPTER_ID_BYTES:
        raise PeerRefusedError(
            f"ids of adapters have {ADAPTER_ID_BYTES} bytes", field="warm_adapters"
        )
    starts = range(0, min(len(packed), MAX_WARM * ADAPTER_ID_BYTES), ADAPTER_ID_BYTES)
    return tuple(packed[at : at + ADAPTER_ID_BYTES] for at in starts)


def adapter_shapes(hello: worker_attach_pb2.WorkerHello) -> bytes:
    """Return what an adapter has to fit on a worker, as a message; empty without one.

    Raises:
        PeerRefusedError: It is too large, or makes no sense.
    """
    if not hello.HasField("adapter_shapes"):
        return b""
    try:
        shapes_from_message(hello.adapter_shapes)
    except WireError as error:
        raise PeerRefusedError(error.message, field=error.field) from error
    return hello.adapter_shapes.SerializeToString(deterministic=True)


def shape_messages(model: ModelInfo) -> list[AdapterShapes]:
    """Return what an adapter has to fit on the workers of a model."""
    return [AdapterShapes.FromString(one) for one in model.adapter_shapes]


def adapter_message(order: SlotLoad) -> worker_attach_pb2.LoadAdapter:
    """Return the request to load an adapter."""
    return worker_attach_pb2.LoadAdapter(
        load_id=order.load_id,
        adapter_id=order.adapter,
        adapter_slot=order.slot,
        sources=order.sources,
        timeout_ms=int(LOAD_SECONDS * 1000),
    )


def adapter_error(message: worker_attach_pb2.AdapterLoaded) -> PagewireError | None:
    """Return why an adapter cannot be used, or None."""
    return from_detail(message.error) if message.HasField("error") else None
