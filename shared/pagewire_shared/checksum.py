"""CRC-32C (Castagnoli, RFC 3720), the checksum of everything that KV passes through."""

import google_crc32c
import numpy as np


def crc32c(data: bytes | memoryview, initial: int = 0) -> int:
    """Return the checksum of contiguous bytes, which follow what had the checksum `initial`. They
    are not copied."""
    # The library takes bytes and no other buffer of Python's own; numpy's view of one passes.
    view = np.frombuffer(data, dtype=np.uint8)
    checksum: int = google_crc32c.extend(initial, view)
    return checksum
