"""CRC-32C (Castagnoli, RFC 3720), the checksum of KV payloads, records and messages."""

from typing import Any

from awscrt import checksums


def crc32c(data: bytes | memoryview, initial: int = 0) -> int:
    """Return the checksum of contiguous bytes without a copy; `initial` is that of the bytes
    before."""
    buffer: Any = data  # the library accepts any buffer, unlike its annotation
    checksum: int = checksums.crc32c(buffer, initial)
    return checksum


def joined_crc32c(first: int, second: int, second_bytes: int) -> int:
    """Return the checksum of two consecutive parts from their checksums and the length of the
    second part, without reading their bytes."""
    checksum: int = checksums.combine_crc32c(first, second, second_bytes)
    return checksum
