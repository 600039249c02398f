"""Converts the messages of kept calls to frames of their log, and back, and puts into them what is
drawn for their answer."""

import hashlib
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from pagewire_frontend.http.kept_streams.ids import CALL_KIND
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_protos.common.v1 import error_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import PagewireError
from pagewire_shared.rpc.errors import from_detail, to_detail

_EVENT: Final = b"\0"
_ERROR: Final = b"\1"

AnswerMessage = TypeVar("AnswerMessage", pb.ChatResponse, pb.CompleteResponse, pb.ResumeResponse)


class CallFraming:
    """Serialized messages, one at a time, each behind a byte that tells it from an error."""

    kind = CALL_KIND

    def frames(self, stream_id: str, first: int, ready: bytes) -> list[bytes]:
        """Return the frame of a message."""
        return [_EVENT + ready]

    def error(self, stream_id: str, number: int, error: PagewireError) -> bytes:
        """Return the frame of an error."""
        return _ERROR + to_detail(error).SerializeToString()


CALL_FRAMING: Final = CallFraming()


def message_of(frame: bytes, stream_id: str, kind: type[AnswerMessage]) -> AnswerMessage:
    """Return the message in a frame. Raises the error in it, if it is one."""
    if frame[:1] == _ERROR:
        raise from_detail(error_pb2.ErrorDetail.FromString(frame[1:]))
    message = kind.FromString(frame[1:])
    if message.HasField("opened"):
        message.opened.stream_id = stream_id
    return message


def pin(message: Any, making: Making) -> None:
    """Put what is drawn for an answer, and what was shown of it before, into one of its
    messages: ids and, at the end, token counts."""
    match message.WhichOneof("event"):
        case "opened":
            message.opened.request_id = making.pins.request_id(0).hex()
        case "delta":
            for call in message.delta.tool_calls:
                if call.id:
                    choice = message.delta.choice
                    call.id = making.pins.call_id(choice, call.index, call.id)
        case "closed":
            _pin_usage(message.closed, making)


def _pin_usage(closed: pb.StreamClosed, making: Making) -> None:
    pinned = making.pinned_usage
    if pinned.body:
        closed.ParseFromString(pinned.body)
    elif pinned.cached_tokens not in (None, closed.usage.cached_tokens):
        closed.usage.cached_tokens = pinned.cached_tokens
        del closed.usage.cached_tokens_by_tier[:]


def digest_of_call(request: Message) -> bytes:
    """Return the digest of a request: of its kind and its fields."""
    body = request.SerializeToString(deterministic=True)
    name = request.DESCRIPTOR.full_name.encode()
    return hashlib.blake2b(name + b"\n" + body, digest_size=32).digest()
