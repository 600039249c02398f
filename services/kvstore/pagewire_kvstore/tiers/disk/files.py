"""The files of a disk tier: names, writing, reading, listing and quarantine.

    <folder>/blocks/<first byte of the name>/<layout id>-<group>-<name>.kv    all in hex
    <folder>/temp/           files being written; removed at every start
    <folder>/quarantine/     damaged files, kept for a person to inspect
    <folder>/lock            locked by the process that uses the folder, for as long as it lives

DiskIndex tracks capacity and order of use. Methods raise OSError as the system does.
"""

import contextlib
import io
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_kvstore.tiers.record_codec import (
    MAX_HEADER_BYTES,
    CorruptRecordError,
    decode_header,
    decode_record,
)
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.process.file_lock import try_lock

FOLDER_MODE = 0o700
FILE_MODE = 0o600
"""Files reveal the prompts of all tenants, so only the store's own user may read them."""

MAX_QUARANTINED_FILES = 32
MAX_QUARANTINED_BYTES = 64 << 20

_FILE_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{8})-([0-9a-f]{32})\.kv")


def file_name(key: BlockKey) -> str:
    """Return the name of a block's file."""
    return f"{key.layout_id.hex()}-{key.group:08x}-{key.name.hex()}.kv"


def key_of(name: str) -> BlockKey | None:
    """Return the key of the block file with that name; None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    layout_id, group, block_name = match.groups()
    return BlockKey(bytes.fromhex(layout_id), int(group, 16), BlockName(bytes.fromhex(block_name)))


class FoundFile(NamedTuple):
    """A block's file as found at the start.

    Attributes:
        key: Key of the block, from the file's name.
        used_at: Seconds since the epoch, from the file's modification time.
        tenant: Tenant in the header; None when the header does not fit name and size.
    """

    key: BlockKey
    num_bytes: int
    used_at: float
    tenant: str | None


class DiskFiles:
    """The files below one folder. Methods may run in several threads at a time."""

    def __init__(self, folder: Path) -> None:
        """Lock the folder, make its missing subfolders and drop partial files.

        Files and subfolders become private to the user of this process, also those that an older
        version wrote. The mode of an existing folder itself stays, because it may be shared.

        Raises StartupError when another process has locked the folder.
        """
        self.folder = folder
        self._blocks = folder / "blocks"
        self._temp = folder / "temp"
        self._quarantine = folder / "quarantine"
        self._numbers = itertools.count()
        self.num_partial = 0
        """Files that were being written when the last process ended."""
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        self._lock: int | None = _locked(folder)
        try:
            for path in (self._blocks, self._temp, self._quarantine):
                make_private(path)
            for path in self._temp.iterdir():
                path.unlink()
                self.num_partial += 1
            self._bound_quarantine()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def path_of(self, key: BlockKey) -> Path:
        """Return the path of a block's file.

        The subfolder comes from the name, which is a hash: few layouts have many blocks each.
        """
        return self._blocks / f"{key.name[0]:02x}" / file_name(key)

    def scan(self) -> Iterator[FoundFile | None]:
        """Yield every block file with the tenant in its header; None for any other entry.

        Headers are read because only they name the tenant, whose quota must also hold after a
        restart. A hash of the tenant in the file name would not do for quotas that differ by
        tenant. Reading takes some 15 us a file, and also finds damaged headers.
        """
        with os.scandir(self._blocks) as folders:
            for folder in folders:
                if not folder.is_dir(follow_symlinks=False):
                    yield None
                    continue
                _close(folder.path, FOLDER_MODE)
                with os.scandir(folder.path) as files:
                    yield from (_found(folder.name, file) for file in files)

    def write_temp(self, header: bytes, record: BlockRecord, now: float, *, sync: bool) -> Path:
        """Write a record to a temporary file and return its path; an error leaves no file.

        Args:
            header: Header of the record, see record_codec.
            now: Modification time of the file, in seconds since the epoch. The file system's own
                time would be equal for files of the same few milliseconds.
            sync: Wait until the file is on the medium.
        """
        path = self._temp / f"{os.getpid()}-{next(self._numbers)}"
        with _removed_on_error(path):
            with created(path) as file:
                write_all(file, header)
                write_all(file, record.payload)
                if sync:
                    os.fsync(file.fileno())
            os.utime(path, (now, now))
        return path

    def try_write(self, num_bytes: int) -> None:
        """Write a file of that size and remove it."""
        path = self._temp / f"{os.getpid()}-{next(self._numbers)}"
        with _removed_on_error(path):
            with created(path) as file:
                write_all(file, bytes(num_bytes))
            path.unlink()

    def publish(self, temp: Path, key: BlockKey) -> None:
        """Move a temporary file to the block's path. An error removes it and changes no block."""
        path = self.path_of(key)
        with _removed_on_error(temp):
            try:
                temp.replace(path)
            except FileNotFoundError:
                # Only the subfolder is made: the tier's folder on a disk that was unmounted must
                # not be made anew on another disk.
                path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
                temp.replace(path)

    def read(self, key: BlockKey) -> BlockRecord:
        """Return a block's record, verified. Raises CorruptRecordError or OSError.

        The header is read first, so that a header with a valid checksum bounds the memory, not the
        size of the file.
        """
        with self.path_of(key).open("rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
            header = decode_header(file.read(MAX_HEADER_BYTES))
            if header.record_bytes != num_bytes:
                raise CorruptRecordError(
                    f"{num_bytes} bytes where the header tells {header.record_bytes}",
                    reason="payload_length",
                )
            file.seek(0)
            return decode_record(file.read(num_bytes), key)

    def touch(self, key: BlockKey, now: float) -> None:
        """Set a file's modification time, in seconds since the epoch."""
        os.utime(self.path_of(key), (now, now))

    def remove(self, key: BlockKey) -> None:
        """Remove a block's file, if it is there."""
        self.path_of(key).unlink(missing_ok=True)

    def quarantine(self, key: BlockKey, now: float) -> None:
        """Move a block's file to quarantine, and remove the oldest files above its bounds."""
        self._quarantine.mkdir(mode=FOLDER_MODE, exist_ok=True)
        name = f"{int(now * 1e9):020d}-{file_name(key)}"
        self.path_of(key).replace(self._quarantine / name)
        self._bound_quarantine()

    def _bound_quarantine(self) -> None:
        files = [(path, path.stat().st_size) for path in sorted(self._quarantine.iterdir())]
        num_bytes = sum(size for _, size in files)
        num_files = len(files)
        for path, size in files:
            if num_files <= MAX_QUARANTINED_FILES and num_bytes <= MAX_QUARANTINED_BYTES:
                break
            path.unlink(missing_ok=True)
            num_files -= 1
            num_bytes -= size


def make_private(folder: Path) -> None:
    """Make a folder that no other user may read, if it is missing."""
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    _close(folder, FOLDER_MODE)


def _close(path: str | Path, mode: int) -> None:
    """Remove the permissions of other users; where the owner is another user, leave them."""
    with contextlib.suppress(PermissionError):
        if stat.S_IMODE(os.lstat(path).st_mode) & ~mode:
            Path(path).chmod(mode)


def created(path: Path) -> io.FileIO:
    """Return a new file that no other user may read, whatever the umask."""
    return io.FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))


def _locked(folder: Path) -> int:
    """Lock the folder; return the file descriptor whose closing unlocks it."""
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not try_lock(file):
        os.close(file)
        raise StartupError(f"{folder}: another process keeps blocks in this folder")
    return file


def _found(folder: str, file: os.DirEntry[str]) -> FoundFile | None:
    key = key_of(file.name)
    if key is None or folder != f"{key.name[0]:02x}":
        return None
    status = file.stat(follow_symlinks=False)
    # Skips folders, links and pipes; opening a pipe would wait.
    if not stat.S_ISREG(status.st_mode):
        return None
    _close(file.path, FILE_MODE)
    tenant = _tenant_in(file.path, key, status.st_size)
    return FoundFile(key, status.st_size, status.st_mtime, tenant)


def _tenant_in(path: str, key: BlockKey, num_bytes: int) -> str | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            header = decode_header(os.read(file, MAX_HEADER_BYTES))
        finally:
            os.close(file)
    except (CorruptRecordError, OSError):
        # One bad sector must not keep a store from starting.
        return None
    is_right = header.key == key and header.record_bytes == num_bytes
    return header.tenant if is_right else None


@contextlib.contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        # A file that cannot be removed is dropped at the next start; the first error is raised.
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def write_all(file: io.FileIO, data: bytes | memoryview) -> None:
    """Write all of `data`."""
    rest = memoryview(data).cast("B")
    while rest:
        # A disk that fills up takes a part and refuses the rest at the next write.
        rest = rest[file.write(rest) :]
