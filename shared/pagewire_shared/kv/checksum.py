"""CRC-32C (Castagnoli, RFC 3720), the checksum of everything that KV passes through."""

from typing import Any

from awscrt import checksums


def crc32c(data: bytes | memoryview, initial: int = 0) -> int:
    """Return the checksum of contiguous bytes, which follow what had the checksum `initial`. They
    are not copied."""
    buffer: Any = data  # any buffer will do, whatever the library's annotation says
    checksum: int = checksums.crc32c(buffer, initial)
    return checksum


def joined_crc32c(first: int, second: int, second_bytes: int) -> int:
    """Return the checksum of two parts, one after the other, from theirs and the length of the
    second, without looking at either."""
    checksum: int = checksums.combine_crc32c(first, second, second_bytes)
    return checksum
