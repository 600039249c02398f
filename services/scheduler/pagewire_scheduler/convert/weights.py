"""Converts what frontends and workers hear about weights."""

from collections.abc import Sequence

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_protos.scheduler.v1 import worker_attach_pb2
from pagewire_scheduler.core.data.events import BegunEvent
from pagewire_shared.errors import PagewireError, WireError
from pagewire_shared.rpc.errors import from_detail
from pagewire_shared.weights.convert import source_to_message, version_to_message
from pagewire_shared.weights.version import UpdateOrder

FINGERPRINT_BYTES = 32


def begun_batch(events: Sequence[BegunEvent]) -> pb.BegunBatch:
    """Return the requests whose output begins."""
    return pb.BegunBatch(
        requests=[
            pb.BegunRequest(
                handle=event.handle,
                epoch=event.epoch,
                weights=version_to_message(event.weights),
            )
            for event in events
        ]
    )


def update_message(order: UpdateOrder) -> worker_attach_pb2.UpdateOrder:
    """Return the order to load other weights."""
    return worker_attach_pb2.UpdateOrder(
        source=source_to_message(order.source), fingerprint=order.fingerprint
    )


def checked_weights(message: worker_attach_pb2.WeightsChecked) -> bytes | PagewireError:
    """Return the fingerprint of weights that a worker could serve, or why it cannot. Raises
    WireError for a torn fingerprint."""
    if message.HasField("error"):
        return from_detail(message.error)
    if len(message.fingerprint) != FINGERPRINT_BYTES:
        raise WireError(f"a fingerprint has {FINGERPRINT_BYTES} bytes", field="fingerprint")
    return message.fingerprint
