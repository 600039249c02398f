"""Reads the answers of calls with many requests: messages of BatchService in, events out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagewire.client.client_convert import event_from_message
from pagewire.client.events import Event
from pagewire_protos.frontend.v1 import batch_pb2, inference_pb2
from pagewire_shared.errors import PagewireError
from pagewire_shared.rpc.errors import from_detail

BatchRequest = inference_pb2.CompleteRequest | inference_pb2.ChatRequest
"""One request of a call with many."""


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A part of the answer to one request.

    Attributes:
        index: Number of the request in its call, from 0.
        events: The next events; the last event of an answer is Closed.
        error: Why there is no answer; None unless the request failed.
        prompt: Rendered text of a conversation; only in the first part of its answer.
    """

    index: int
    events: Sequence[Event]
    error: PagewireError | None
    prompt: str | None


def batch_request(requests: Iterable[BatchRequest]) -> batch_pb2.GenerateBatchRequest:
    """Return the call for several requests."""
    return batch_pb2.GenerateBatchRequest(items=[_item(request) for request in requests])


def _item(request: BatchRequest) -> batch_pb2.BatchItem:
    if isinstance(request, inference_pb2.ChatRequest):
        return batch_pb2.BatchItem(chat=request)
    return batch_pb2.BatchItem(complete=request)


def batch_parts(message: batch_pb2.GenerateBatchResponse) -> list[BatchPart]:
    """Return what a message says, in its order."""
    return [
        BatchPart(
            answer.index,
            [event_from_message(event) for event in answer.events],
            from_detail(answer.error) if answer.HasField("error") else None,
            answer.prompt if answer.HasField("prompt") else None,
        )
        for answer in message.answers
    ]
