"""Where files of memory lie that processes of one host share. Maps nothing itself."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from pagewire_shared.kv.arena import SUFFIX
from pagewire_shared.kv.arena_facts import ArenaFacts, boot_id
from pagewire_shared.process.file_lock import try_lock

DEFAULT_FOLDER: Final = Path("/dev/shm")
_MOUNTS = Path("/proc/self/mounts")


def new_arena_path(folder: Path, prefix: str) -> Path:
    """Return a path in `folder` that nobody has; who is removed with `remove_stale` says it by its
    prefix."""
    return folder / f"{prefix}{secrets.token_hex(8)}{SUFFIX}"


def arena_facts(path: Path) -> ArenaFacts:
    """Return what peers need to know of the file of an arena."""
    found = path.stat()
    identity = (found.st_dev, found.st_ino, found.st_size)
    return ArenaFacts(str(path.absolute()), boot_id(), *identity)


def is_in_memory(folder: Path) -> bool:
    """Whether what is mounted on `folder` keeps its files in memory."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return False
    # Device, folder, type, options, ...; the last mount on a folder is the one that is seen.
    types = [fields[2] for line in lines if (fields := line.split())[1] == str(folder)]
    return bool(types) and types[-1] == "tmpfs"


def free_bytes(folder: Path) -> int:
    """Return the room for files of this user in bytes."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def remove_stale(folder: Path, prefix: str) -> None:
    """Remove the arenas of processes that were killed: who lives holds the lock of its file."""
    for path in folder.glob(f"{prefix}*{SUFFIX}"):
        # Of another user, or just removed by another process.
        with suppress(PermissionError, FileNotFoundError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if try_lock(file):
                    path.unlink()
            finally:
                os.close(file)
