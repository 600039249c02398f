"""The content of adapters in memory, of stores without a disk."""

import mmap

from pagewire_kvstore.adapters.blob_medium import BlobKey
from pagewire_kvstore.tiers.memory_limit import available_bytes
from pagewire_shared.errors import OverloadedError


class BlobMemory:
    """Content in anonymous mappings: pages are taken as bytes come, and given back at once."""

    def __init__(self) -> None:
        self._held: dict[BlobKey, mmap.mmap] = {}

    def create(self, key: BlobKey) -> "MemoryDraft":
        """See BlobMedium."""
        left, bound = available_bytes()
        if key.num_bytes > left:
            raise OverloadedError(
                f"the adapter has {key.num_bytes} bytes, and {bound} leaves {left} for the store"
            )
        return MemoryDraft(self._held, key)

    def open(self, key: BlobKey) -> "MemoryReader":
        """See BlobMedium."""
        return MemoryReader(self._held[key], key.num_bytes)

    def remove(self, key: BlobKey) -> None:
        """See BlobMedium."""
        del self._held[key]  # the pages go with the last reader

    def touch(self, key: BlobKey) -> None:
        """Do nothing: nothing is left for the next start."""


class MemoryDraft:
    """A mapping that is being written; see BlobDraft."""

    def __init__(self, held: dict[BlobKey, mmap.mmap], key: BlobKey) -> None:
        self._held = held
        self._key = key
        self._memory: mmap.mmap | None = mmap.mmap(-1, key.num_bytes)

    def write(self, data: bytes) -> None:
        """See BlobDraft."""
        assert self._memory is not None, "written after its end"
        self._memory.write(data)

    def publish(self) -> None:
        """See BlobDraft."""
        assert self._memory is not None, "published after its end"
        self._held[self._key], self._memory = self._memory, None

    def discard(self) -> None:
        """See BlobDraft."""
        if self._memory is not None:
            self._memory.close()


class MemoryReader:
    """Reads a mapping from its begin; see BlobReader."""

    def __init__(self, memory: mmap.mmap, num_bytes: int) -> None:
        self._memory = memory
        self._num_bytes = num_bytes
        self._at = 0

    def read(self, num_bytes: int, /) -> bytes:
        """See BlobReader."""
        begin, self._at = self._at, min(self._at + num_bytes, self._num_bytes)
        return self._memory[begin : self._at]

    def close(self) -> None:
        """Do nothing: content in memory stays until it is removed."""
