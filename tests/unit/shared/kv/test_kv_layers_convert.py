"""Layers of KV: what is written by hand is protobuf, what any encoder writes is read, and what was
changed on the way is noticed."""

import struct

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import WireError
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.layers_convert import (
    KvLayersPiece,
    LayerRange,
    decode_response,
    encode_response,
    layers_checksum,
)

U32 = st.integers(0, 2**32 - 1)
RANGES = st.builds(LayerRange, U32, U32, U32, U32)
SENT = st.builds(KvLayersPiece, RANGES, U32, st.lists(st.binary(max_size=200), max_size=3))
SHARED = st.builds(KvLayersPiece, RANGES, U32, st.just(()), st.integers(0, 2**64 - 1))
PIECES = SENT | SHARED


def fields(piece):
    return piece.range, piece.checksum, b"".join(piece.parts), piece.offset


def message_of(piece):
    covered = piece.range
    return wire.KvLayers(
        first_block=covered.first_block,
        num_blocks=covered.num_blocks,
        first_layer=covered.first_layer,
        num_layers=covered.num_layers,
        checksum=piece.checksum,
        offset=piece.offset,
        data=b"".join(piece.parts),
    )


def test_the_checksum_has_a_known_answer():
    names = [b"a" * 16, b"b" * 16]
    head = b"".join(names) + struct.pack("<4I", 1, 2, 3, 4)
    assert layers_checksum(names, LayerRange(1, 2, 3, 4), [b"xy", b"z"]) == crc32c(head + b"xyz")
    others = [LayerRange(0, 2, 3, 4), LayerRange(1, 2, 4, 4), LayerRange(1, 2, 3, 1)]
    found = {layers_checksum(names, one, [b"xyz"]) for one in others}
    assert len(found | {layers_checksum(names[::-1], LayerRange(1, 2, 3, 4), [b"xyz"])}) == 4


@given(PIECES)
def test_protobuf_decodes_encoded_layers(piece):
    data = encode_response(piece)
    response = wire.PullResponse.FromString(data)
    assert response.WhichOneof("message") == "layers"
    assert response.layers == message_of(piece)
    assert data == response.SerializeToString()


@given(PIECES)
def test_layers_round_trip(piece):
    assert fields(decode_response(encode_response(piece))) == fields(piece)


@given(PIECES, st.randoms(use_true_random=False))
def test_layers_of_protobufs_encoder_are_decoded(piece, rng):
    """Fields in any order, and one that nobody knows yet."""
    parts = [
        wire.KvLayers(**{field.name: value}).SerializeToString()
        for field, value in message_of(piece).ListFields()
    ]
    parts.append(b"\xa0\x06\x05")  # field 100
    rng.shuffle(parts)
    body = b"".join(parts)
    length = bytearray()
    size = len(body)
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    assert fields(decode_response(b"\x22" + bytes(length) + body)) == fields(piece)


def test_the_payload_is_not_copied():
    data = encode_response(KvLayersPiece(LayerRange(0, 1, 0, 1), 7, [b"abc"]))
    read = decode_response(data)
    assert read.parts[0].obj is data


def test_other_messages_are_left_to_the_parser():
    missing = wire.PullResponse(missing=wire.PullMissing(names=b"n" * 16))
    assert decode_response(encode_response(missing)) == missing
    assert decode_response(b"") == wire.PullResponse()


@pytest.mark.parametrize("place", [{"parts": [b"abc"]}, {"offset": 5}, {}])
def test_a_seal_comes_along(place):
    piece = KvLayersPiece(LayerRange(1, 2, 3, 4), 7, seal=b"s" * 16, **place)
    data = encode_response(piece)
    assert wire.PullResponse.FromString(data).layers.seal == piece.seal
    for encoded in (data, wire.PullResponse.FromString(data).SerializeToString()):
        assert decode_response(encoded).seal == piece.seal


@pytest.mark.parametrize("length", range(1, 45))
def test_truncated_layers_are_refused(length):
    data = encode_response(KvLayersPiece(LayerRange(1, 2, 3, 400), 5000, [b"x" * 30]))
    assert len(data) == 46
    with pytest.raises((WireError, DecodeError)):
        decode_response(data[:length])


def test_layers_have_either_a_payload_or_an_offset():
    layers = wire.KvLayers(num_blocks=1, num_layers=1, offset=0, data=b"x")
    with pytest.raises(WireError, match="an offset and a payload"):
        decode_response(wire.PullResponse(layers=layers).SerializeToString())
