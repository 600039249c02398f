"""Encodes and decodes block records, in the same format for files and for Redis.

A record is a header and the payload behind it; integers are little-endian, without padding:

    magic "PWKB"        4 bytes
    version             u8, 1
    header length       u16, up to and with the header's checksum
    layout id           16 bytes
    group               u32
    name                16 bytes
    tenant length       u16
    tenant              UTF-8
    payload length      u64
    payload checksum    u32, CRC-32C of the payload
    header checksum     u32, CRC-32C of all bytes before it

The header has its own checksum, so that a reader can trust the lengths and the key before it has
the payload. The encoding is canonical: each record has exactly one valid header.
"""

import struct
from dataclasses import dataclass

from pagewire_kvstore.blocks.tenants import MAX_TENANT_BYTES
from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.identity.ids import ID_BYTES, BlockName
from pagewire_shared.kv.checksum import crc32c

MAGIC = b"PWKB"
VERSION = 1

_FRONT = struct.Struct("<4sBH16sI16sH")
_BACK = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
MIN_HEADER_BYTES = _FRONT.size + _BACK.size + _CHECKSUM.size
MAX_HEADER_BYTES = MIN_HEADER_BYTES + MAX_TENANT_BYTES
_MAX_U32 = 2**32 - 1


@dataclass
class CorruptRecordError(PagewireError):
    """Bytes that are not the expected record; always a miss, never served.

    Attributes:
        reason: Kind of damage, for metrics: truncated, magic, version, header_length,
            header_checksum, tenant, payload_length, payload_checksum, other_key.
    """

    code: str = "corrupt_record"
    reason: str = ""
    status_name = "DATA_LOSS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHeader:
    """The fields before the payload.

    Attributes:
        tenant: Tenant whose quota the block counts towards; empty for the default tenant.
        checksum: CRC-32C of the payload.
    """

    key: BlockKey
    tenant: str
    header_bytes: int
    payload_bytes: int
    checksum: int

    @property
    def record_bytes(self) -> int:
        """Length of header and payload."""
        return self.header_bytes + self.payload_bytes


def encode_record(record: BlockRecord) -> bytes:
    """Return the header to write before `record.payload`.

    The record's checksum is copied, not computed, so that earlier damage is detected, too.
    Raises InvalidRequestError for a record that no header can describe.
    """
    key = record.key
    for value, field in ((key.layout_id, "layout_id"), (key.name, "name")):
        if len(value) != ID_BYTES:
            raise InvalidRequestError(f"{field} has {len(value)} bytes, not {ID_BYTES}", field)
    for number, field in ((key.group, "group"), (record.checksum, "checksum")):
        if not 0 <= number <= _MAX_U32:
            raise InvalidRequestError(f"{field} {number} does not fit 32 bits", field)
    try:
        tenant = record.tenant.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("tenant is not valid Unicode", "tenant") from error
    if len(tenant) > MAX_TENANT_BYTES:
        raise InvalidRequestError(
            f"tenant has {len(tenant)} bytes, at most {MAX_TENANT_BYTES} are allowed", "tenant"
        )
    payload = memoryview(record.payload)
    if not payload.c_contiguous:
        raise InvalidRequestError("the payload is not contiguous", "payload")
    header_bytes = MIN_HEADER_BYTES + len(tenant)
    header = b"".join(
        (
            _FRONT.pack(MAGIC, VERSION, header_bytes, *key, len(tenant)),
            tenant,
            _BACK.pack(payload.nbytes, record.checksum),
        )
    )
    return header + _CHECKSUM.pack(crc32c(header))


def decode_header(data: bytes | memoryview) -> RecordHeader:
    """Return the header that `data` begins with; later bytes are not read.

    Raises CorruptRecordError.
    """
    if len(data) < MIN_HEADER_BYTES:
        raise _corrupt("truncated", f"{len(data)} bytes are no header")
    magic, version, header_bytes, layout_id, group, name, tenant_bytes = _FRONT.unpack_from(data)
    if magic != MAGIC:
        raise _corrupt("magic", "it does not begin as a record does")
    if version != VERSION:
        raise _corrupt("version", f"version {version} is not known")
    if tenant_bytes > MAX_TENANT_BYTES or header_bytes != MIN_HEADER_BYTES + tenant_bytes:
        raise _corrupt("header_length", f"{header_bytes} with a tenant of {tenant_bytes} bytes")
    if len(data) < header_bytes:
        raise _corrupt("truncated", f"{len(data)} bytes of a header of {header_bytes}")
    header = memoryview(data)[:header_bytes]
    end = header_bytes - _CHECKSUM.size
    (checksum,) = _CHECKSUM.unpack_from(header, end)
    if checksum != crc32c(header[:end]):
        raise _corrupt("header_checksum", "the header does not match its checksum")
    payload_bytes, payload_crc = _BACK.unpack_from(header, end - _BACK.size)
    try:
        tenant = str(header[_FRONT.size : _FRONT.size + tenant_bytes], "utf-8")
    except UnicodeDecodeError as error:
        raise _corrupt("tenant", "the tenant is not UTF-8") from error
    key = BlockKey(layout_id, group, BlockName(name))
    return RecordHeader(
        key=key,
        tenant=tenant,
        header_bytes=header_bytes,
        payload_bytes=payload_bytes,
        checksum=payload_crc,
    )


def decode_record(data: bytes | memoryview, expected_key: BlockKey | None = None) -> BlockRecord:
    """Return the record that `data` consists of; its payload is a view of `data`.

    Args:
        data: Contiguous bytes of header and payload. They must not change while the record is used.
        expected_key: Key that the record must have; None takes any.

    Raises CorruptRecordError for anything but one intact record of that key.
    """
    view = memoryview(data).cast("B")
    header = decode_header(view)
    if expected_key is not None and header.key != expected_key:
        raise _corrupt("other_key", "it is the record of another block")
    if len(view) != header.record_bytes:
        raise _corrupt(
            "payload_length", f"{len(view)} bytes where its header tells {header.record_bytes}"
        )
    payload = view[header.header_bytes :]
    if crc32c(payload) != header.checksum:
        raise _corrupt("payload_checksum", "the payload does not match its checksum")
    return BlockRecord(header.key, header.tenant, payload, header.checksum)


def _corrupt(reason: str, detail: str) -> CorruptRecordError:
    return CorruptRecordError(f"not a whole block record: {detail}", reason=reason)
