"""Serializers of gRPC streams that carry KV: chunks become KvPiece without protobuf's copies."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from pagewire_shared.kv.chunk_convert import KvPiece, decode_chunk, decode_piece, encode_piece

CarrierT = TypeVar("CarrierT", bound=Message)


class _MessageClass(Protocol[CarrierT]):
    """A generated class whose oneof `message` may be `chunk`."""

    FromString: Callable[[bytes], CarrierT]
    DESCRIPTOR: Any


def serializer(carrier: _MessageClass[CarrierT]) -> Callable[[CarrierT | KvPiece], bytes]:
    """Return a function that encodes a message, or a chunk as that message."""
    field = carrier.DESCRIPTOR.fields_by_name["chunk"].number

    def encode(message: CarrierT | KvPiece) -> bytes:
        if isinstance(message, KvPiece):
            return encode_piece(message, field=field)
        return message.SerializeToString()

    return encode


def deserializer(carrier: _MessageClass[CarrierT]) -> Callable[[bytes], CarrierT | KvPiece]:
    """Return a function that decodes a message; a chunk always becomes a KvPiece.

    The function raises WireError, or protobuf's DecodeError, for invalid bytes.
    """
    field = carrier.DESCRIPTOR.fields_by_name["chunk"].number

    def decode(data: bytes) -> CarrierT | KvPiece:
        piece = decode_piece(data, field=field)
        if piece is not None:
            return piece
        message = carrier.FromString(data)
        if message.HasField("chunk"):
            carried: Any = message
            return decode_chunk(carried.chunk)
        return message

    return decode
