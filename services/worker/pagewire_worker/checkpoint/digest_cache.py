"""Stores digests of hashed files in the user's cache folder.

A digest is valid only for the same file: path, device, inode, size and both times must be as they
were when it was hashed. A change of contents changes the last time, even if a tool resets the other
one. The cache itself is trusted only if no other user can have written it.
"""

import contextlib
import json
import os
import stat
import tempfile
import time
from pathlib import Path

FILE_NAME = "file_digests.json"
VERSION = 1
MAX_ENTRIES = 4096
DIGEST_BYTES = 32

SETTLED_SECONDS = 2.0
"""A file changed less than this ago may change again and keep the same time."""


class DigestCache:
    """Stores BLAKE3 digests by file.

    A cache that cannot be read finds no digest; one that cannot be written stores none.

    Args:
        folder: Folder of the user's caches; made if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME

    def find(self, path: Path) -> bytes | None:
        """Return the digest of an unchanged file, or None."""
        with contextlib.suppress(OSError, ValueError):
            digest = bytes.fromhex(self._read().get(_key(path, path.stat()), ""))
            return digest if len(digest) == DIGEST_BYTES else None
        return None

    def keep(self, path: Path, before: os.stat_result, digest: bytes) -> None:
        """Store the digest of a file with status `before` when its first byte was read.

        Stores nothing if the file has changed since, or may change without a trace.
        """
        newest = max(before.st_mtime, before.st_ctime)
        with contextlib.suppress(OSError):
            key = _key(path, before)
            if key != _key(path, path.stat()) or time.time() - newest < SETTLED_SECONDS:
                return
            entries = self._read()
            entries.pop(key, None)
            entries[key] = digest.hex()
            newest_entries = dict(list(entries.items())[-MAX_ENTRIES:])
            self._write({"version": VERSION, "digests": newest_entries})

    def _read(self) -> dict[str, str]:
        """Return the entries, oldest first; no entries if others may have written the file."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return {}
                data = json.loads(file.read())
        except (OSError, ValueError):
            return {}
        if not isinstance(data, dict) or data.get("version") != VERSION:
            return {}
        entries = data.get("digests")
        if not isinstance(entries, dict):
            return {}
        return {key: value for key, value in entries.items() if isinstance(value, str)}

    def _write(self, data: object) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Another worker may write too: the last one wins, and lost digests are computed again.
        handle, name = tempfile.mkstemp(prefix=FILE_NAME, dir=self._path.parent)  # mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(data, file)
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _key(path: Path, status: os.stat_result) -> str:
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return f"{path.resolve()} {' '.join(map(str, facts))}"
