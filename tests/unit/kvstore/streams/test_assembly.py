"""Chunks become blocks: whole ones only, in order, and what is wrong says why."""

import pytest

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord, StoreLayout
from pagewire_kvstore.streams.assembly import Assembly
from pagewire_kvstore.streams.convert import store_layout
from pagewire_kvstore.streams.limits import ByteBudget
from pagewire_protos.common.v1 import layout_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.chunk_convert import KvPiece, decode_piece, encode_piece

LAYOUT = StoreLayout(b"L" * 16, (10, 4))
NAME, OTHER = BlockName(b"n" * 16), BlockName(b"o" * 16)


def sent(data, *, name=NAME, group=0, offset=0, is_last=False, **more):
    message = encode_piece(
        KvPiece(name=name, group=group, offset=offset, is_last=is_last, data=data, **more), field=2
    )
    piece = decode_piece(message, field=2)
    assert piece is not None
    return piece


def assembly():
    made = Assembly(ByteBudget(100))
    made.want([NAME], LAYOUT, "t")
    return made


def test_chunks_in_order_are_a_block():
    made = assembly()
    made.add(sent(b"0123"))
    made.add(sent(b"abcd", group=1, is_last=True))
    made.add(sent(b"456789", offset=4, is_last=True))
    assert made.held_bytes == 14
    first, second = made.take(NAME)
    key = BlockKey(b"L" * 16, 0, NAME)
    assert first == BlockRecord(key, "t", b"0123456789", crc32c(b"0123456789"))
    assert (second.key.group, second.payload) == (1, b"abcd")
    assert made.held_bytes == 0
    with pytest.raises(InvalidRequestError, match="not announced"):
        made.add(sent(b"0123"))


def test_the_block_checksum_must_match_its_chunks():
    made = assembly()
    made.add(sent(b"0123"))
    made.add(sent(b"456789", offset=4, is_last=True, payload_checksum=crc32c(b"0123456789")))
    with pytest.raises(InvalidRequestError, match="another checksum than its pieces"):
        made.add(sent(b"abcd", group=1, is_last=True, payload_checksum=crc32c(b"abce")))
    with pytest.raises(InvalidRequestError, match="another checksum than its pieces"):
        made.add(sent(b"ab", group=1, payload_checksum=crc32c(b"ab")))


@pytest.mark.parametrize(
    ("piece", "message"),
    [
        (sent(b"x", name=OTHER), "not announced"),
        (sent(b"x", group=2), "no group 2"),
        (sent(b"x", offset=1), "byte 0 is next, not 1"),
        (sent(b"x" * 11), "has 10 bytes; 11 came"),
        (sent(b"x" * 9, is_last=True), "9 came and no more will"),
        (sent(b"x" * 10), "10 came"),
        (sent(b""), "0 came"),
        (sent(b"x", num_layers=1), "stored whole"),
        (sent(b"x", checksum=7), "another checksum"),
    ],
)
def test_invalid_chunks_are_refused(piece, message):
    with pytest.raises(InvalidRequestError, match=message):
        assembly().add(piece)


def test_an_incomplete_block_cannot_be_taken():
    made = assembly()
    made.add(sent(b"0123456789", is_last=True))
    with pytest.raises(InvalidRequestError, match="not complete"):
        made.take(NAME)
    with pytest.raises(InvalidRequestError, match="byte 10 is next"):
        made.add(sent(b"0123456789", is_last=True))


def layout(**changes):
    group = {"num_layers": 2, "block_size": 16, "bytes_per_block": 64, "num_shards": 1}
    message = layout_pb2.KvLayout(
        model_fingerprint=b"m" * 32,
        numerics_fingerprint=b"n" * 32,
        groups=[layout_pb2.CacheGroup(**{**group, **changes.pop("group", {})})],
    )
    for field, value in changes.items():
        setattr(message, field, value)
    return message


def test_layout_ids_differ_for_incompatible_layouts():
    ids = [
        store_layout(layout(**changes)).layout_id
        for changes in (
            {},
            {"model_fingerprint": b"M" * 32},
            {"numerics_fingerprint": b"N" * 32},
            {"group": {"block_size": 32}},
            {"group": {"num_shards": 2}},
            {"group": {"num_shards": 2, "shard": 1}},
            {"group": {"dtype": "bfloat16"}},
        )
    ]
    assert len(set(ids)) == len(ids)
    assert store_layout(layout()).group_bytes == (64,)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model_fingerprint": b""}, "layout.model_fingerprint"),
        ({"numerics_fingerprint": b"x"}, "layout.numerics_fingerprint"),
        ({"group": {"bytes_per_block": 0}}, "layout.groups"),
        ({"group": {"bytes_per_block": 1 << 31}}, "layout.groups"),
        ({"group": {"shard": 1}}, "layout.groups"),
    ],
)
def test_an_invalid_layout_is_refused(changes, field):
    with pytest.raises(InvalidRequestError) as caught:
        store_layout(layout(**changes))
    assert caught.value.field == field
