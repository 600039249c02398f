"""Arena: a fixed mapping of memory for payloads, touched at the start, optionally a shared file.

Extents tracks the free parts of an arena.
"""

import mmap
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from pagewire_shared.errors import StartupError
from pagewire_shared.process.file_lock import try_lock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaFacts:
    """The file of an arena as its owner sees it. A peer has the same file only if all agree."""

    path: str
    boot_id: str
    device: int
    inode: int
    num_bytes: int


def boot_id() -> str:
    """Return the boot id of this host's kernel. Raises OSError where the system has no boot id."""
    return _BOOT_ID.read_text().strip()


SUFFIX = ".arena"
"""Suffix of an arena's file. Stale files are replaced, so the suffix protects all other files."""

_NUM_ATTEMPTS = 10
_ZEROS_BYTES = 1024 * 1024


class Arena:
    """One mapping of `capacity_bytes` that never grows.

    Every page is touched at the start: the first touch of a page costs many times more than a copy
    into it, and missing memory is an error at the start instead of a signal later.

    Args:
        capacity_bytes: Size in bytes.
        path: File to map, which other processes of the host can map, too; its folder should be in
            memory, such as /dev/shm. None for anonymous memory. `close` removes the file; a file
            that a dead process left is replaced.

    Raises:
        StartupError: Too little memory or room, or a path that cannot be used.
    """

    def __init__(self, capacity_bytes: int, path: Path | None = None) -> None:
        assert capacity_bytes > 0, capacity_bytes
        total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if capacity_bytes > total_bytes:
            raise StartupError(
                f"an arena of {capacity_bytes} bytes is larger than the host's memory"
                f" of {total_bytes} bytes"
            )
        self.capacity_bytes = capacity_bytes
        self.path = path
        self._file = None if path is None else _create_file(path, capacity_bytes)
        try:
            self._map = _map(self._file, capacity_bytes)
        except OSError as error:
            self._remove_file()
            raise StartupError(f"cannot map {capacity_bytes} bytes: {error.strerror}") from error
        self._bytes = memoryview(self._map)

    @property
    def memory(self) -> memoryview:
        """All bytes, writable; the memory stays mapped while a reference to this view exists."""
        return memoryview(self._map)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copy `data`, a C-contiguous buffer, to `offset` in bytes. Other threads run meanwhile."""
        source = memoryview(data).cast("B")
        self._check(offset, source.nbytes)
        if not source.nbytes:
            return
        into = self._bytes[offset : offset + source.nbytes]
        # A copy between memoryviews would hold the interpreter lock.
        np.copyto(np.frombuffer(into, dtype=np.uint8), np.frombuffer(source, dtype=np.uint8))

    def view(self, offset: int, num_bytes: int) -> memoryview:
        """Return the bytes at `offset` without a copy, read-only."""
        self._check(offset, num_bytes)
        return self._bytes[offset : offset + num_bytes].toreadonly()

    def close(self) -> None:
        """Remove the file and unmap; views that are still in use keep the memory mapped."""
        self._remove_file()
        self._bytes.release()
        try:
            self._map.close()
        except BufferError:
            # A view is in use: the mapping ends with the last view.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self, offset: int, num_bytes: int) -> None:
        # A slice out of range would be shortened silently.
        assert 0 <= offset <= offset + num_bytes <= self.capacity_bytes, (offset, num_bytes)

    def _remove_file(self) -> None:
        if self._file is None or self.path is None:
            return
        if _is_at(self._file, self.path):
            self.path.unlink()
        os.close(self._file)
        self._file = None


def _map(file: int | None, capacity_bytes: int) -> mmap.mmap:
    """Map a file, or anonymous memory, with every page touched."""
    flags = mmap.MAP_SHARED if file is not None else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    populate = getattr(mmap, "MAP_POPULATE", 0)
    mapped = mmap.mmap(-1 if file is None else file, capacity_bytes, flags | populate)
    if not populate:
        for offset in range(0, capacity_bytes, mmap.PAGESIZE):
            mapped[offset] = 0
    return mapped


def _create_file(path: Path, capacity_bytes: int) -> int:
    """Create, lock and size the file; return its descriptor. The lock shows a living owner."""
    if path.suffix != SUFFIX:
        raise StartupError(f"{path}: the name of an arena's file ends with {SUFFIX}")
    try:
        file = _create_locked(path)
    except OSError as error:
        raise StartupError(f"{path}: cannot create an arena: {error.strerror}") from error
    try:
        os.ftruncate(file, capacity_bytes)
        _reserve(file, capacity_bytes)
    except OSError as error:
        path.unlink()
        os.close(file)
        raise StartupError(
            f"{path}: no room for an arena of {capacity_bytes} bytes: {error.strerror}"
        ) from error
    return file


def _create_locked(path: Path) -> int:
    """Create the file exclusively and lock it; replace the file of a dead process."""
    common = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(_NUM_ATTEMPTS):
        try:
            file = os.open(path, common | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            _remove_stale(path, common)
            continue
        # Before the lock, another process may have removed the file as stale.
        if try_lock(file) and _is_at(file, path):
            return file
        os.close(file)
    raise StartupError(f"{path}: other processes keep creating this arena")


def _remove_stale(path: Path, flags: int) -> None:
    """Remove the file of a dead process. Raises StartupError when its process lives."""
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise StartupError(f"{path}: not a regular file; it cannot become an arena")
        if not try_lock(file):
            raise StartupError(f"{path}: another process holds this arena")
        # Only the holder of the lock removes the file, so the path still names this file.
        if _is_at(file, path):
            path.unlink()
    finally:
        os.close(file)


def _is_at(file: int, path: Path) -> bool:
    """Return whether `path` still names this open file."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def _reserve(file: int, capacity_bytes: int) -> None:
    """Reserve all bytes in the file system, so that a full one fails here, not at a later touch."""
    if sys.platform == "linux":
        os.posix_fallocate(file, 0, capacity_bytes)
        return
    zeros = bytes(_ZEROS_BYTES)
    for offset in range(0, capacity_bytes, _ZEROS_BYTES):
        os.pwrite(file, zeros[: capacity_bytes - offset], offset)
