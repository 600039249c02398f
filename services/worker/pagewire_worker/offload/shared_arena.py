"""Maps the memory of a store on the same host. Checks bounds, and trusts no content."""

import logging
import mmap
import os
import stat
from collections.abc import Callable, Sequence

import numpy as np

from pagewire_shared.errors import WireError
from pagewire_shared.kv.arena import ArenaFacts, boot_id
from pagewire_shared.kv.checksum import crc32c

_logger = logging.getLogger(__name__)

# A constant of Linux; Python has no name for it.
_MADV_POPULATE_WRITE = 23
_TOUCHED_BYTES = 4 * 1024 * 1024


class SharedArena:
    """A mapped file of payloads.

    Attributes:
        is_doubtful: Whether data was not where the store said: it may have another file by now.
    """

    def __init__(self, mapped: mmap.mmap) -> None:
        self.is_doubtful = False
        self._mapped = mapped
        # numpy lets other threads run while it copies; a memoryview does not.
        self._bytes = np.frombuffer(mapped, dtype=np.uint8)

    def write_all(
        self,
        offsets: Sequence[int],
        payloads: Sequence[memoryview],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> list[int]:
        """Copy payloads to `offsets` and return the CRC-32C of each.

        It stops before the next payload once `is_cancelled`, which may be asked in any thread.

        Raises:
            WireError: An offset lies outside; payloads before it are written, and never published.
        """
        checksums = []
        for offset, payload in zip(offsets, payloads, strict=True):
            if is_cancelled():
                break
            self._check(offset, len(payload))
            data = np.frombuffer(payload, dtype=np.uint8)
            np.copyto(self._bytes[offset : offset + len(payload)], data)
            checksums.append(crc32c(payload))
        return checksums

    def read(self, offset: int, num_bytes: int, checksum: int) -> memoryview | None:
        """Return a copy of a payload; None when its CRC-32C is not `checksum`.

        It is the copy that is verified: the memory is not ours.

        Raises:
            WireError: It lies outside.
        """
        payload = self.copy(offset, num_bytes).data
        if crc32c(payload) == checksum:
            return payload
        self.is_doubtful = True
        return None

    def copy(self, offset: int, num_bytes: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
        """Return a copy of some bytes, uint8 [num_bytes]. Raises WireError outside of them."""
        self._check(offset, num_bytes)
        copy = np.empty(num_bytes, dtype=np.uint8)
        np.copyto(copy, self._bytes[offset : offset + num_bytes])
        return copy

    def touch(self) -> None:
        """Enter all pages into the page tables of this process, a few MiB at a time; in a thread.

        They are there, but the first look at each would cost a fault, as much as copying it.
        """
        for start in range(0, len(self._mapped), _TOUCHED_BYTES):
            length = min(_TOUCHED_BYTES, len(self._mapped) - start)
            try:
                self._mapped.madvise(_MADV_POPULATE_WRITE, start, length)
            except OSError:
                return  # before Linux 5.14, or elsewhere: page by page as they are used

    def _check(self, offset: int, num_bytes: int) -> None:
        if offset + num_bytes > len(self._bytes):
            self.is_doubtful = True
            raise WireError(f"offsets: {num_bytes} bytes at {offset} are outside the shared memory")


def open_arena(facts: ArenaFacts) -> SharedArena | None:
    """Map a store's memory; None when it is not that of this host, or cannot be mapped."""
    try:
        if boot_id() != facts.boot_id.strip():
            return None
        # Not to wait for a writer, should the path lead to a pipe.
        file = os.open(facts.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        _logger.info("the store's memory at %s cannot be shared: %s", facts.path, error.strerror)
        return None
    try:
        found = os.fstat(file)
        identity = (found.st_dev, found.st_ino)
        if not stat.S_ISREG(found.st_mode) or identity != (facts.device, facts.inode):
            return None
        if not 0 < facts.num_bytes <= found.st_size:
            return None
        return SharedArena(mmap.mmap(file, facts.num_bytes))
    except (OSError, ValueError) as error:
        _logger.info("the store's memory at %s cannot be mapped: %s", facts.path, error)
        return None
    finally:
        os.close(file)
