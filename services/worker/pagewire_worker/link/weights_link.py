"""The part of an attach that is about the weights of its worker."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wire
from pagewire_shared.errors import InternalError, PagewireError
from pagewire_shared.rpc.errors import to_detail
from pagewire_shared.weights.convert import source_from_message, source_to_message
from pagewire_shared.weights.version import UpdateOrder, WeightsSource


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsLink:
    """The weights of one worker, for its attaches.

    Attributes:
        source: Returns where they are from.
        failure: Returns serial and error of the newest update that failed; None for none.
        check: Returns the fingerprint of the weights in a folder; runs in a thread, and raises
            PagewireError for weights that do not do.
        on_update: Called with an order to load others.
    """

    source: Callable[[], WeightsSource]
    failure: Callable[[], tuple[int, PagewireError] | None]
    check: Callable[[str], bytes]
    on_update: Callable[[UpdateOrder], None]
    one_check: asyncio.Lock = field(default_factory=asyncio.Lock)

    def introduce(self, hello: wire.WorkerHello) -> None:
        """Add the weights to a hello."""
        hello.weights.CopyFrom(source_to_message(self.source()))
        failure = self.failure()
        if failure is not None:
            serial, error = failure
            failed = wire.WeightsFailure(serial=serial, error=to_detail(error))
            hello.weights_failure.CopyFrom(failed)

    def take(self, order: wire.UpdateOrder) -> None:
        """Take an order to load other weights."""
        self.on_update(UpdateOrder(source_from_message(order.source), order.fingerprint))

    async def answer(self, query: wire.CheckWeights) -> wire.AttachWorkerRequest:
        """Return the answer about the weights in a folder; one folder is read at a time."""
        answer = wire.WeightsChecked(query_id=query.query_id)
        try:
            async with self.one_check:
                answer.fingerprint = await asyncio.to_thread(self.check, query.path)
        except PagewireError as error:
            answer.error.CopyFrom(to_detail(error))
        except Exception as error:  # noqa: BLE001  # the asker must hear of any fault
            answer.error.CopyFrom(to_detail(InternalError(f"the weights cannot be read: {error}")))
        return wire.AttachWorkerRequest(weights_checked=answer)
