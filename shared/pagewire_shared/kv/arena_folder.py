"""Names and checks the files of arenas in a folder, and removes those of dead processes."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from pagewire_shared.kv.arena import SUFFIX, ArenaFacts, boot_id
from pagewire_shared.process.file_lock import try_lock

DEFAULT_FOLDER: Final = Path("/dev/shm")
_MOUNTS = Path("/proc/self/mounts")


def new_arena_path(folder: Path, prefix: str) -> Path:
    """Return an unused path in `folder`; `remove_stale` finds its file by the prefix."""
    return folder / f"{prefix}{secrets.token_hex(8)}{SUFFIX}"


def arena_facts(path: Path) -> ArenaFacts:
    """Return the facts by which peers identify the file of an arena."""
    found = path.stat()
    return ArenaFacts(
        path=str(path.absolute()),
        boot_id=boot_id(),
        device=found.st_dev,
        inode=found.st_ino,
        num_bytes=found.st_size,
    )


def is_in_memory(folder: Path) -> bool:
    """Return whether the file system mounted on `folder` keeps its files in memory."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return False
    # Device, folder, type, options, ...; the last mount on a folder hides earlier ones.
    types = [fields[2] for line in lines if (fields := line.split())[1] == str(folder)]
    return bool(types) and types[-1] == "tmpfs"


def free_bytes(folder: Path) -> int:
    """Return the room for files of this user in bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def remove_stale(folder: Path, prefix: str) -> None:
    """Remove the arenas of dead processes; a live process holds the lock of its file."""
    for path in folder.glob(f"{prefix}*{SUFFIX}"):
        # The file may belong to another user, or another process may just have removed it.
        with suppress(PermissionError, FileNotFoundError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if try_lock(file):
                    path.unlink()
            finally:
                os.close(file)
