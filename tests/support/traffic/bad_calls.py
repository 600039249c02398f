"""Requests for the public gRPC service, as bytes, most of them bad, made from the descriptors:
every field, nested ones too, times every kind of value, and bytes that are no message."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from pagewire_protos.frontend.v1 import inference_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["InferenceService"]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NESTED = 7
"""Messages in messages that are looked into; a Struct may hold itself."""


@dataclass(frozen=True, slots=True)
class BadCall:
    """One request.

    Attributes:
        method: Of the service.
        what: Field and kind, for messages.
        data: The request as bytes.
        is_decodable: Whether it is a message at all; None where that is not said here.
    """

    method: str
    what: str
    data: bytes = field(repr=False)
    is_decodable: bool | None = None

    @property
    def path(self) -> str:
        """The name of the method as gRPC has it."""
        return f"/{SERVICE.full_name}/{self.method}"


def varint(value: int) -> bytes:
    """Return a number of up to 64 bits as the wire has it."""
    value &= 2**64 - 1
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def wire(number: int, kind: int, data: bytes) -> bytes:
    """Return a field as the wire has it."""
    length = varint(len(data)) if kind == _BYTES else b""
    return varint(number << 3 | kind) + length + data


_INTEGERS = (0, 1, -1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1)
_FLOATS = (0.0, -0.0, 1.5, -1.0, 1e-45, 3e38, float("nan"), float("inf"), float("-inf"))
_TEXTS = (b"", b"a", b"a\0b", b"word " * 4000, "\U0001f600\u202e".encode(), b"{", b"[1]", b"12")
_NO_TEXTS = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"a\xf0\x9f")


def bad_calls() -> Iterator[BadCall]:
    """All of them."""
    for method in SERVICE.methods:
        base = _base(method.name)
        yield BadCall(method.name, "nothing", b"", True)
        for path, what, data, is_decodable in _changes(method.input_type, ()):
            yield BadCall(method.name, f"{'.'.join(path)}: {what}", base + data, is_decodable)
        for number, data in enumerate((b"\xff", b"\xff" * 100, b"\x0a\xff", b"\x07", b"\0" * 9)):
            yield BadCall(method.name, f"no message {number}", data, False)
        for end in range(1, len(base)):
            yield BadCall(method.name, f"{end} bytes of it", base[:end])


def _base(method: str) -> bytes:
    options = pb.GenerationOptions()
    options.sampling.max_tokens = 1
    turn = pb.ChatMessage(role=pb.CHAT_ROLE_USER, content="hello")
    requests: dict[str, Any] = {
        "Chat": pb.ChatRequest(messages=[turn], options=options),
        "Complete": pb.CompleteRequest(text="hello", options=options),
        "Resume": pb.ResumeRequest(stream_id="call_1", num_received=1),
        "CancelStream": pb.CancelStreamRequest(stream_id="call_1"),
        "Embed": pb.EmbedRequest(inputs=[pb.EmbedInput(text="hello")]),
        "Pool": pb.PoolRequest(inputs=[pb.EmbedInput(text="hello")]),
        "Score": pb.ScoreRequest(queries=["hello"], documents=["world"]),
        "Tokenize": pb.TokenizeRequest(text="hello"),
        "Detokenize": pb.DetokenizeRequest(token_ids=[5, 6]),
        "ListModels": pb.ListModelsRequest(),
    }
    data: bytes = requests[method].SerializeToString()
    return data


def _changes(
    message: Descriptor, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str, bytes, bool | None]]:
    """Yield path, kind, bytes to append, and whether they can be decoded, for all fields."""
    for found in message.fields:
        here = (*path, found.name)
        for what, data, is_decodable in _values(found):
            yield here, what, data, is_decodable
        if found.message_type is not None and len(path) < _NESTED and found.name not in path:
            for inner, what, data, is_decodable in _changes(found.message_type, here):
                yield inner, what, wire(found.number, _BYTES, data), is_decodable


def _values(found: FieldDescriptor) -> Iterator[tuple[str, bytes, bool | None]]:
    number = found.number
    if found.message_type is not None:
        yield "empty", wire(number, _BYTES, b""), True
        yield "many", wire(number, _BYTES, b"") * 300, True
        yield "no message", wire(number, _BYTES, b"\xff"), False
    elif found.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        for index, text in enumerate(_TEXTS):
            yield f"text {index}", wire(number, _BYTES, text), True
        for index, text in enumerate(_NO_TEXTS):
            yield f"no text {index}", wire(number, _BYTES, text), None
        yield "many", wire(number, _BYTES, b"a") * 3000, True
    elif found.type == FieldDescriptor.TYPE_FLOAT:
        for value in _FLOATS:
            yield str(value), wire(number, _FIXED32, struct.pack("<f", value)), True
    elif found.type == FieldDescriptor.TYPE_DOUBLE:
        for value in _FLOATS:
            yield str(value), wire(number, _FIXED64, struct.pack("<d", value)), True
    else:
        for value in _INTEGERS:
            yield str(value), wire(number, _VARINT, varint(value)), True
        yield "many", wire(number, _VARINT, b"\1") * 5000, True
        yield "half a number", varint(number << 3) + b"\xff", False
    yield "other type", wire(number, _FIXED64, b"\0" * 8), None
    yield "a group", varint(number << 3 | 3), None
