"""Records as bytes: known answers, and that nothing but a whole, right record is taken for one."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pagewire_kvstore.blocks.tenants import MAX_TENANT_BYTES
from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_kvstore.tiers.record_codec import (
    MAX_HEADER_BYTES,
    CorruptRecordError,
    decode_header,
    decode_record,
    encode_record,
)
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c

KEY = BlockKey(bytes(range(16)), 0x01020304, BlockName(bytes(range(16, 32))))
PAYLOAD = b"123456789"


def record_of(payload=PAYLOAD, key=KEY, tenant="té"):
    return BlockRecord(key, tenant, payload, crc32c(payload))


def whole(record):
    return encode_record(record) + bytes(record.payload)


def resealed(header):
    """The header with the right checksum for what it says."""
    return header[:-4] + crc32c(header[:-4]).to_bytes(4, "little")


def refusal(data, key=KEY):
    with pytest.raises(CorruptRecordError) as caught:
        decode_record(data, key)
    return caught.value.reason


def test_known_answer_of_the_bytes():
    # CRC-32C of "123456789" is the check value of its definition; the header's is held to another
    # implementation of it, bit by bit, too.
    assert crc32c(PAYLOAD) == 0xE3069283
    header = (
        "50574b42 01 4000 000102030405060708090a0b0c0d0e0f 04030201"
        "101112131415161718191a1b1c1d1e1f 0300 74c3a9 0900000000000000 839206e3"
    )
    front = bytes.fromhex(header)
    assert encode_record(record_of()) == front + crc_bit_by_bit(front).to_bytes(4, "little")
    assert encode_record(record_of())[-4:].hex() == "c9ed1984"


def crc_bit_by_bit(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@settings(deadline=None)
@given(
    layout_id=st.binary(min_size=16, max_size=16),
    group=st.integers(0, 2**32 - 1),
    name=st.binary(min_size=16, max_size=16),
    tenant=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    payload=st.binary(max_size=200),
)
def test_records_round_trip(layout_id, group, name, tenant, payload):
    record = record_of(payload, BlockKey(layout_id, group, BlockName(name)), tenant)
    assert decode_record(whole(record), record.key) == record
    assert decode_record(whole(record)) == record


@pytest.mark.parametrize("wrap", [bytes, memoryview, lambda data: memoryview(bytearray(data))])
def test_a_payload_is_a_view_and_may_come_as_one(wrap):
    record = record_of(wrap(PAYLOAD))
    data = wrap(encode_record(record) + PAYLOAD)
    decoded = decode_record(data, KEY)
    assert bytes(decoded.payload) == PAYLOAD
    assert isinstance(decoded.payload, memoryview)
    assert decoded.payload.obj is (data.obj if isinstance(data, memoryview) else data)


def test_an_empty_payload_is_a_payload():
    assert bytes(decode_record(whole(record_of(b""))).payload) == b""


def test_every_flipped_bit_is_found():
    data = whole(record_of())
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        for key in (KEY, None):
            assert refusal(bytes(damaged), key)


def test_every_truncation_and_anything_behind_is_found():
    data = whole(record_of())
    for length in range(len(data)):
        assert refusal(data[:length]) in ("truncated", "payload_length")
    assert refusal(data + b"\0") == "payload_length"
    assert refusal(data + data) == "payload_length"


def test_ten_thousand_random_damages_are_found():
    dice = random.Random(7)
    records = [whole(record_of(dice.randbytes(500), KEY._replace(group=n))) for n in range(8)]
    for _ in range(10_000):
        right = dice.choice(records)
        damaged = bytearray(right)
        match dice.randrange(3):
            case 0:
                for _ in range(dice.randrange(1, 5)):
                    damaged[dice.randrange(len(damaged))] ^= dice.randrange(1, 256)
            case 1:
                del damaged[dice.randrange(len(damaged)) :]
            case 2:
                cut = dice.randrange(len(damaged))
                damaged[cut:] = dice.choice(records)[cut:]
        if damaged != right:
            assert refusal(bytes(damaged), KEY._replace(group=records.index(right)))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_never_a_record(data):
    assert refusal(data, None)
    assume(data != PAYLOAD)
    assert refusal(encode_record(record_of()) + data, None)


def test_another_block_s_record_is_refused():
    other = KEY._replace(group=5)
    assert refusal(whole(record_of(key=other))) == "other_key"
    assert decode_record(whole(record_of(key=other))).key == other


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (slice(0, 4), b"PWKC", "magic"),
        (slice(4, 5), b"\x02", "version"),
        (slice(5, 7), b"\x41\x00", "header_length"),
        (slice(43, 45), b"\xff\xff", "header_length"),
        (slice(46, 47), b"\xff", "tenant"),
        (slice(48, 56), b"\xff" * 8, "payload_length"),
        (slice(56, 60), b"\0\0\0\0", "payload_checksum"),
    ],
)
def test_a_header_with_a_right_checksum_is_still_checked(place, value, reason):
    header = bytearray(encode_record(record_of()))
    header[place] = value
    assert refusal(resealed(bytes(header)) + PAYLOAD) == reason


def test_a_payload_of_another_checksum_is_written_and_then_refused():
    assert refusal(whole(BlockRecord(KEY, "", PAYLOAD, 1))) == "payload_checksum"


def test_a_header_can_be_read_without_its_payload():
    data = encode_record(record_of())
    header = decode_header(data)
    assert (header.key, header.tenant) == (KEY, "té")
    assert (header.header_bytes, header.record_bytes) == (len(data), len(data) + len(PAYLOAD))
    longest = encode_record(record_of(tenant="t" * MAX_TENANT_BYTES))
    assert len(longest) == MAX_HEADER_BYTES
    assert decode_header(longest).tenant == "t" * MAX_TENANT_BYTES


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (BlockRecord(KEY._replace(layout_id=b"short"), "", b"", 0), "layout_id"),
        (BlockRecord(KEY._replace(name=BlockName(bytes(17))), "", b"", 0), "name"),
        (BlockRecord(KEY._replace(group=-1), "", b"", 0), "group"),
        (BlockRecord(KEY._replace(group=2**32), "", b"", 0), "group"),
        (BlockRecord(KEY, "", b"", 2**32), "checksum"),
        (BlockRecord(KEY, "", memoryview(PAYLOAD)[::2], 0), "payload"),
        (BlockRecord(KEY, "é" * 513, b"", 0), "tenant"),
        (BlockRecord(KEY, "\ud800", b"", 0), "tenant"),
    ],
)
def test_records_that_no_header_can_describe_are_refused(record, field):
    with pytest.raises(InvalidRequestError) as caught:
        encode_record(record)
    assert caught.value.field == field
