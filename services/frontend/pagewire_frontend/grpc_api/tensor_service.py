"""Takes the tensors of a StreamWeights call, and has workers load them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.scheduler.weights_link import WeightsCalls
from pagewire_frontend.weights.inbox import IncomingCheckpoint, WeightsInbox
from pagewire_frontend.weights.shards import Tensor
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import DeadlineError, InvalidRequestError

SILENCE_SECONDS: Final = 60.0
"""Longest wait for the next message."""


class TensorCall:
    """Takes calls of one frontend.

    Args:
        inbox: Where tensors are written; None for a frontend without --weights-dir.
        find_model: Returns a served model by its name. Raises ModelNotFoundError.
    """

    def __init__(
        self,
        inbox: WeightsInbox | None,
        calls: WeightsCalls,
        find_model: Callable[[str | None], LoadedModel],
    ) -> None:
        self._inbox = inbox
        self._calls = calls
        self._find_model = find_model

    async def run(
        self, messages: AsyncIterator[admin_pb2.StreamWeightsRequest]
    ) -> list[admin_pb2.WorkerTopology]:
        """Take all messages of a call and update the weights; nothing changes before its last one.

        Raises:
            InvalidRequestError, UnavailableError: As WeightsInbox and WeightsCalls.
            DeadlineError: No message came for a while.
        """
        if self._inbox is None:
            raise InvalidRequestError(
                "this frontend takes no tensors: start it with --weights-dir FOLDER"
            )
        first = await _next(messages)
        if first is None or not first.HasField("begin") or first.begin.path:
            raise InvalidRequestError("the first message is begin, without path", field="begin")
        request = first.begin
        model = self._find_model(request.model if request.HasField("model") else None)
        request.model = model.name
        with self._inbox.receive(model.name, model.folder) as incoming:
            await asyncio.to_thread(incoming.open)
            request.path = str(await _fill(incoming, messages))
        try:
            workers = await self._calls.update(request)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(incoming.remove))
            raise
        await asyncio.to_thread(self._inbox.remove_others, model.name, Path(request.path))
        return workers


async def _fill(
    incoming: IncomingCheckpoint, messages: AsyncIterator[admin_pb2.StreamWeightsRequest]
) -> Path:
    """Write the tensors; return the folder once all have come."""
    while (message := await _next(messages)) is not None:
        if message.HasField("end"):
            return await asyncio.to_thread(incoming.finish, message.end.num_tensors)
        if not message.HasField("bucket"):
            raise InvalidRequestError("begin is the first message only", field="begin")
        bucket = message.bucket
        tensors = [Tensor(one.name, one.dtype, tuple(one.shape)) for one in bucket.tensors]
        await asyncio.to_thread(incoming.write, tensors, bucket.data)
    raise InvalidRequestError("the stream ended without end: nothing has changed", field="end")


async def _next(
    messages: AsyncIterator[admin_pb2.StreamWeightsRequest],
) -> admin_pb2.StreamWeightsRequest | None:
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            return await anext(messages, None)
    except TimeoutError:
        raise DeadlineError(f"no message came for {SILENCE_SECONDS:g} s") from None
