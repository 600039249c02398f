"""The content of adapters on disk, beside the blocks of the disk tier.

    <disk path>/adapters/<identity>-<size of config>-<size of weights>.adapter
    <disk path>/adapters/temp/       files being written; removed at every start

The lock of the disk tier's folder guards these files, too. A file that was cut short does not have
the sizes in its name; a file with other damage is found by its hash when it is read.
"""

import itertools
import logging
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final

from pagewire_kvstore.adapters.blob_medium import BlobKey
from pagewire_kvstore.tiers.disk.files import created, make_private, write_all

_logger = logging.getLogger(__name__)

_FILE_NAME: Final = re.compile(r"([0-9a-f]{64})-([0-9]{1,19})-([0-9]{1,19})\.adapter")


class BlobFiles:
    """Content as one file each.

    Attributes:
        found: The content that was there at the start, the one used longest ago first.
    """

    def __init__(self, disk_path: Path) -> None:
        """Make the folders, and remove the files that are not whole. It blocks; raises OSError."""
        self._folder = disk_path / "adapters"
        self._temp = self._folder / "temp"
        self._numbers = itertools.count()
        for folder in (self._folder, self._temp):
            make_private(folder)
        for path in self._temp.iterdir():
            path.unlink()
        self.found = self._scan()

    def path_of(self, key: BlobKey) -> Path:
        """Return the path of the file."""
        sizes = f"{key.num_config_bytes}-{key.num_weight_bytes}"
        return self._folder / f"{key.adapter_id.hex()}-{sizes}.adapter"

    def create(self, key: BlobKey) -> "FileDraft":
        """See BlobMedium."""
        return FileDraft(self._temp / f"{os.getpid()}-{next(self._numbers)}", self.path_of(key))

    def open(self, key: BlobKey) -> BinaryIO:
        """See BlobMedium."""
        return self.path_of(key).open("rb")

    def remove(self, key: BlobKey) -> None:
        """See BlobMedium."""
        self.path_of(key).unlink(missing_ok=True)

    def touch(self, key: BlobKey) -> None:
        """See BlobMedium."""
        os.utime(self.path_of(key))

    def _scan(self) -> list[BlobKey]:
        found: list[tuple[int, BlobKey]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                key = key_of(entry.name)
                if key is None:
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_size == key.num_bytes:
                    found.append((status.st_mtime_ns, key))
                    continue
                _logger.warning("removed %s: it is not whole", entry.path)
                os.unlink(entry.path)
        found.sort(key=lambda one: one[0])
        return [key for _, key in found]


def key_of(name: str) -> BlobKey | None:
    """Return the content that a file of this name holds; None for any other name."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    return BlobKey(bytes.fromhex(match[1]), int(match[2]), int(match[3]))


class FileDraft:
    """A file that is being written; see BlobDraft."""

    def __init__(self, temp: Path, path: Path) -> None:
        self._temp = temp
        self._path = path
        self._file = created(temp)

    def write(self, data: bytes) -> None:
        """See BlobDraft."""
        write_all(self._file, data)

    def publish(self) -> None:
        """See BlobDraft."""
        os.fsync(self._file.fileno())
        self._file.close()
        self._temp.replace(self._path)

    def discard(self) -> None:
        """See BlobDraft."""
        self._file.close()
        self._temp.unlink(missing_ok=True)
