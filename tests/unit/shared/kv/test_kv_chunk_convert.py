"""Chunks of KV: what is written by hand is protobuf, what any encoder writes is read, and what was
changed on the way is noticed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_protos.common.v1.layout_pb2 import KvChunk
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c, joined_crc32c
from pagewire_shared.kv.chunk_convert import (
    MAX_DATA_BYTES,
    KvPiece,
    checksum_of,
    decode_piece,
    encode_piece,
)

NAME = BlockName(bytes(range(16)))
PIECES = st.builds(
    KvPiece,
    name=st.binary(min_size=16, max_size=16).map(BlockName),
    group=st.integers(0, 2**32 - 1),
    first_layer=st.integers(0, 2**32 - 1),
    num_layers=st.integers(0, 2**32 - 1),
    offset=st.integers(0, 2**64 - 1),
    is_last=st.booleans(),
    data=st.binary(max_size=300),
    payload_checksum=st.none() | st.integers(0, 2**32 - 1),
)


def same(one: KvPiece, other: KvPiece) -> bool:
    def fields(piece):
        return (
            *(piece.name, piece.group, piece.first_layer, piece.num_layers, piece.offset),
            *(piece.is_last, bytes(piece.data), piece.payload_checksum),
        )

    return fields(one) == fields(other)


def test_the_checksum_has_a_known_answer():
    """CRC-32C of "123456789" is e3069283 (RFC 3720, appendix B.4 uses the same polynomial)."""
    assert crc32c(b"123456789") == 0xE3069283
    piece = KvPiece(name=NAME, group=0, offset=0, is_last=True, data=b"abc")
    assert checksum_of(piece) == crc32c(b"\x0a\x10" + NAME + b"abc")
    later = KvPiece(name=NAME, group=2, offset=300, is_last=True, data=b"abc")
    expected = crc32c(b"\x0a\x10" + NAME + b"\x10\x02" + b"\x28\xac\x02" + b"abc")
    assert checksum_of(later) == expected


@given(PIECES)
def test_protobuf_decodes_encoded_chunks(piece):
    message = encode_piece(piece, field=2)
    put = kv_store_pb2.PutRequest.FromString(message)
    assert put.WhichOneof("message") == "chunk"
    chunk = put.chunk
    assert (chunk.name, chunk.group, chunk.offset) == (piece.name, piece.group, piece.offset)
    assert (chunk.first_layer, chunk.num_layers) == (piece.first_layer, piece.num_layers)
    assert (chunk.is_last, chunk.data) == (piece.is_last, bytes(piece.data))
    assert chunk.checksum == checksum_of(piece)
    assert chunk.HasField("payload_checksum") == (piece.payload_checksum is not None)
    assert chunk.payload_checksum == (piece.payload_checksum or 0)
    # Field by field as protobuf itself writes them, but for an empty payload, which it leaves out.
    assert message == put.SerializeToString() or not piece.data


@given(PIECES)
def test_chunks_round_trip(piece):
    read = decode_piece(encode_piece(piece, field=1), field=1)
    assert read is not None
    assert same(read, piece)
    assert read.data_checksum is not None


@given(PIECES, st.randoms(use_true_random=False))
def test_chunks_of_protobufs_encoder_are_decoded(piece, rng):
    """Fields in another order, as the encodings of one field each, one after the other."""
    whole = KvChunk(
        name=piece.name,
        group=piece.group,
        first_layer=piece.first_layer,
        num_layers=piece.num_layers,
        offset=piece.offset,
        is_last=piece.is_last,
        data=piece.data,
        checksum=checksum_of(piece),
        payload_checksum=piece.payload_checksum,
    )
    parts = []
    for field, value in whole.ListFields():
        parts.append(KvChunk(**{field.name: value}).SerializeToString())
    rng.shuffle(parts)
    inner = b"".join(parts)
    message = kv_store_pb2.GetResponse(chunk=whole).SerializeToString()
    begin = message.index(whole.SerializeToString())
    read = decode_piece(message[:begin] + inner, field=1)
    assert read is not None
    assert same(read, piece)
    assert read.data_checksum is not None


def test_the_payload_is_not_copied():
    message = encode_piece(
        KvPiece(name=NAME, group=0, offset=0, is_last=True, data=b"abc"), field=1
    )
    read = decode_piece(message, field=1)
    assert read is not None
    assert isinstance(read.data, memoryview)
    assert read.data.obj is message


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_checksums_are_joined_as_their_bytes_are(first, second, third):
    joined = joined_crc32c(crc32c(first), crc32c(second), len(second))
    assert joined == crc32c(first + second)
    assert joined_crc32c(joined, crc32c(third), len(third)) == crc32c(first + second + third)
    assert joined_crc32c(7, crc32c(bytes(2**20)), 2**20) == crc32c(bytes(2**20), 7)


def test_a_checksum_that_is_known_already_is_not_computed_again():
    piece = KvPiece(name=NAME, group=1, offset=2**20, is_last=True, data=b"abc")
    assert checksum_of(piece, crc32c(b"abc")) == checksum_of(piece)
    assert checksum_of(piece, crc32c(b"abd")) != checksum_of(piece)


def test_other_messages_are_left_to_the_parser():
    publish = kv_store_pb2.PutRequest(publish=kv_store_pb2.PutPublish(names=NAME))
    assert decode_piece(publish.SerializeToString(), field=2) is None
    assert decode_piece(b"", field=2) is None
    assert decode_piece(b"\xff" * 30, field=2) is None


def test_every_flipped_bit_is_noticed():
    """It is no chunk any more, another field, or a chunk that is not intact."""
    piece = KvPiece(
        name=NAME,
        group=3,
        offset=5000,
        is_last=True,
        data=random.Random(1).randbytes(50),
        first_layer=2,
        num_layers=7,
    )
    message = encode_piece(piece, field=1)
    for bit in range(len(message) * 8):
        torn = bytearray(message)
        torn[bit // 8] ^= 1 << bit % 8
        try:
            read = decode_piece(bytes(torn), field=1)
        except WireError:
            continue
        # `is_last` stands outside the checksum: a block that ends early is not whole.
        if read is not None and read.data_checksum is not None:
            assert same(
                KvPiece(
                    name=NAME,
                    group=3,
                    offset=5000,
                    is_last=read.is_last,
                    data=piece.data,
                    first_layer=2,
                    num_layers=7,
                ),
                read,
            )


@pytest.mark.parametrize("length", range(1, 60))
def test_a_truncated_chunk_is_refused(length):
    message = encode_piece(
        KvPiece(
            name=NAME,
            group=3,
            offset=5000,
            is_last=True,
            data=b"x" * 30,
            first_layer=2,
            num_layers=7,
        ),
        field=1,
    )
    try:
        read = decode_piece(message[:length], field=1)
    except WireError:
        return
    assert read is None


def test_bounds_are_refused():
    long = encode_piece(
        KvPiece(name=NAME, group=0, offset=0, is_last=True, data=bytes(MAX_DATA_BYTES + 1)), field=1
    )
    with pytest.raises(WireError, match="at most 1048576 bytes"):
        decode_piece(long, field=1)
    short = encode_piece(
        KvPiece(name=BlockName(b"short"), group=0, offset=0, is_last=True, data=b""), field=1
    )
    with pytest.raises(WireError, match="16 bytes, not 5"):
        decode_piece(short, field=1)
