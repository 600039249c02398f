"""Encodes and decodes KvLayers without a second copy of its payload.

The encoder writes the header itself and appends the payload. Its output is the protobuf encoding of
`pagewire.worker.v1.PullResponse`, so any decoder reads it. Input with another order of fields goes
through protobuf's parser. (Encoding: https://protobuf.dev/programming-guides/encoding/)
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.arrays import encode_varint, read_varint
from pagewire_shared.kv.checksum import crc32c

MAX_DATA_BYTES: Final = 1024 * 1024
"""Most payload of one message, unless one layer of one block is larger."""

_FIRST_BLOCK, _NUM_BLOCKS, _FIRST_LAYER, _NUM_LAYERS, _CHECKSUM, _OFFSET = (
    number << 3 for number in range(1, 7)
)
_NUMBERS: Final = (_FIRST_BLOCK, _NUM_BLOCKS, _FIRST_LAYER, _NUM_LAYERS, _CHECKSUM, _OFFSET)
_SEAL: Final = (7 << 3) | 2
_DATA: Final = (15 << 3) | 2
_LAYERS: Final = (wire.PullResponse.DESCRIPTOR.fields_by_name["layers"].number << 3) | 2
_U32_MAX: Final = 0xFFFFFFFF

Part = bytes | memoryview


@dataclass(frozen=True, slots=True)
class LayerRange:
    """A range of layers of a range of blocks, as indices into the requested names."""

    first_block: int
    num_blocks: int
    first_layer: int
    num_layers: int


@dataclass(frozen=True, slots=True)
class KvLayersPiece:
    """Some layers of some blocks.

    Attributes:
        checksum: See `layers_checksum`.
        parts: The payload in consecutive parts; empty when it is in shared memory.
        offset: Offset in shared memory; None when `parts` is the payload.
        seal: By a key of the cell; empty from a worker without one.
    """

    range: LayerRange
    checksum: int
    parts: Sequence[Part] = ()
    offset: int | None = None
    seal: bytes = b""

    @property
    def num_bytes(self) -> int:
        """Bytes of `parts`."""
        return sum(len(part) for part in self.parts)


def layers_checksum(names: Sequence[bytes], covered: LayerRange, parts: Sequence[Part]) -> int:
    """Return the CRC-32C over the names of the blocks in `covered`, its fields and the payload.

    Args:
        names: Names of exactly these blocks.
    """
    fields = (covered.first_block, covered.num_blocks, covered.first_layer, covered.num_layers)
    checksum = crc32c(b"".join(names) + struct.pack("<4I", *fields))
    for part in parts:
        checksum = crc32c(part, checksum)
    return checksum


def encode_response(response: "wire.PullResponse | KvLayersPiece") -> bytes:
    """Return an encoded PullResponse."""
    if not isinstance(response, KvLayersPiece):
        return response.SerializeToString()
    covered, num_bytes = response.range, response.num_bytes
    header = b"".join(
        (
            _number(_FIRST_BLOCK, covered.first_block),
            _number(_NUM_BLOCKS, covered.num_blocks),
            _number(_FIRST_LAYER, covered.first_layer),
            _number(_NUM_LAYERS, covered.num_layers),
            _number(_CHECKSUM, response.checksum),
            b"" if response.offset is None else _present(_OFFSET, response.offset),
            _present(_SEAL, len(response.seal)) + response.seal if response.seal else b"",
            _present(_DATA, num_bytes) if num_bytes else b"",
        )
    )
    outer = encode_varint(_LAYERS) + encode_varint(len(header) + num_bytes)
    return b"".join((outer, header, *response.parts))


def decode_response(message: bytes) -> "wire.PullResponse | KvLayersPiece":
    """Return a PullResponse; layers always become a KvLayersPiece with a view as payload.

    Raises:
        WireError, google.protobuf.message.DecodeError: The message is not a PullResponse.
    """
    view = memoryview(message)
    body = _body_of_layers(view)
    if body is not None:
        piece = _decode(body)
        if piece is not None:
            return piece
    response = wire.PullResponse.FromString(message)
    if response.HasField("layers"):
        return _from_message(response.layers)
    return response


def _body_of_layers(view: memoryview) -> memoryview | None:
    """Return the encoded layers when they are the only field of the message, else None."""
    try:
        tag, position = read_varint(view, 0)
        if tag != _LAYERS:
            return None
        length, position = read_varint(view, position)
    except WireError:
        return None
    return view[position:] if len(view) - position == length else None


def _decode(view: memoryview) -> KvLayersPiece | None:
    """Decode layers whose fields are in order with the payload last; None for other encodings."""
    found: dict[int, int] = {}
    position, last_tag, seal = 0, 0, b""
    while position < len(view):
        tag, position = read_varint(view, position)
        value, position = read_varint(view, position)
        if tag <= last_tag or tag not in (*_NUMBERS, _SEAL, _DATA):
            return None
        last_tag = tag
        if tag == _SEAL:
            if value > len(view) - position:
                return None
            seal, position = bytes(view[position : position + value]), position + value
            continue
        if tag == _DATA:
            # Data is not the last field, or is cut off: protobuf's parser decides.
            data = view[position:]
            return _piece(found, data, seal) if value == len(data) else None
        found[tag] = value
    return _piece(found, None, seal)


def _from_message(layers: wire.KvLayers) -> KvLayersPiece:
    found = {
        _FIRST_BLOCK: layers.first_block,
        _NUM_BLOCKS: layers.num_blocks,
        _FIRST_LAYER: layers.first_layer,
        _NUM_LAYERS: layers.num_layers,
        _CHECKSUM: layers.checksum,
    }
    if layers.HasField("offset"):
        found[_OFFSET] = layers.offset
    return _piece(found, memoryview(layers.data) if layers.data else None, layers.seal)


def _piece(found: dict[int, int], data: memoryview | None, seal: bytes) -> KvLayersPiece:
    offset = found.pop(_OFFSET, None)
    if any(value > _U32_MAX for value in found.values()):
        raise WireError("layers: a number does not fit into 32 bits", field="layers")
    if offset is not None and data:
        raise WireError("layers: they have an offset and a payload", field="layers")
    covered = LayerRange(
        *(found.get(tag, 0) for tag in (_FIRST_BLOCK, _NUM_BLOCKS, _FIRST_LAYER, _NUM_LAYERS))
    )
    parts = (data,) if data else ()
    return KvLayersPiece(covered, found.get(_CHECKSUM, 0), parts, offset, seal)


def _number(tag: int, value: int) -> bytes:
    return _present(tag, value) if value else b""


def _present(tag: int, value: int) -> bytes:
    return encode_varint(tag) + encode_varint(value)
