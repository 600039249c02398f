"""Says what a place for the content of adapters offers; there is one on disk and one in memory."""

from dataclasses import dataclass
from typing import Final, Protocol

PAGE_BYTES: Final = 4096
"""Bytes are counted in whole pages, as files and memory take them."""


@dataclass(frozen=True, slots=True)
class BlobKey:
    """The content of one adapter: both files, one after the other.

    Attributes:
        adapter_id: SHA-256 of the content, 32 bytes.
        num_config_bytes: Size of adapter_config.json.
        num_weight_bytes: Size of adapter_model.safetensors.
    """

    adapter_id: bytes
    num_config_bytes: int
    num_weight_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of both files."""
        return self.num_config_bytes + self.num_weight_bytes


def whole_pages(num_bytes: int) -> int:
    """Return `num_bytes` rounded up to whole pages."""
    return -(-num_bytes // PAGE_BYTES) * PAGE_BYTES


class BlobDraft(Protocol):
    """Content on its way in, which cannot be read yet. Methods block, and raise OSError."""

    def write(self, data: bytes) -> None:
        """Append bytes; all calls together write at most the size in the key."""
        ...

    def publish(self) -> None:
        """Let the content be opened from now on. It is on the medium then."""
        ...

    def discard(self) -> None:
        """Remove it, unless it is published."""
        ...


class BlobReader(Protocol):
    """Content that is being read. Methods block, and raise OSError."""

    def read(self, num_bytes: int, /) -> bytes:
        """Return the next bytes; fewer where it ends."""
        ...

    def close(self) -> None:
        """End the reading."""
        ...


class BlobMedium(Protocol):
    """Where content lies. Methods block, and may run in several threads; they raise OSError."""

    def create(self, key: BlobKey) -> BlobDraft:
        """Begin to write. Raises OverloadedError where there is no memory."""
        ...

    def open(self, key: BlobKey) -> BlobReader:
        """Begin to read published content."""
        ...

    def remove(self, key: BlobKey) -> None:
        """Remove published content that is not being read."""
        ...

    def touch(self, key: BlobKey) -> None:
        """Note for the next start that it was used now."""
        ...
