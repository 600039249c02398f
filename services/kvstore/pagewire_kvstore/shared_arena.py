"""Where memory lies that peers of the same host may map. Maps nothing itself."""

import fcntl
import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path

from pagewire_kvstore.arena import SUFFIX
from pagewire_shared.arena_facts import ArenaFacts, boot_id
from pagewire_shared.errors import StartupError

_logger = logging.getLogger(__name__)

OFF = "off"
DEFAULT_FOLDER = Path("/dev/shm")
_MOUNTS = Path("/proc/self/mounts")
_PREFIX = "pagewire-kv-"


def arena_path(setting: str | None, num_bytes: int) -> Path | None:
    """Return a new path for an arena; None when the memory is to be private.

    Args:
        setting: A folder, "off", or None for the host's own folder if it is one in memory with
            enough room.
        num_bytes: Size of the arena.

    Raises:
        StartupError: The folder is none.
    """
    if setting == OFF:
        return None
    folder = DEFAULT_FOLDER if setting is None else Path(setting)
    if setting is None and not _is_in_memory(folder):
        return None
    if not folder.is_dir():
        raise StartupError(
            f"--shared-memory-path: {folder} is no folder", field="shared_memory_path"
        )
    _remove_stale(folder)
    free_bytes = _free_bytes(folder)
    if setting is None and free_bytes < num_bytes:
        _logger.warning(
            "no shared memory: %s has %d bytes free and %d are needed; peers of this host send"
            " blocks over gRPC (--shared-memory-path off says that this is meant)",
            folder,
            free_bytes,
            num_bytes,
        )
        return None
    return folder / f"{_PREFIX}{secrets.token_hex(8)}{SUFFIX}"


def shared_arena(path: Path) -> ArenaFacts:
    """Return what peers need to know of the file of an arena."""
    found = path.stat()
    identity = (found.st_dev, found.st_ino, found.st_size)
    return ArenaFacts(str(path.absolute()), boot_id(), *identity)


def _is_in_memory(folder: Path) -> bool:
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return False
    # Device, folder, type, options, ...; the last mount on a folder is the one that is seen.
    types = [fields[2] for line in lines if (fields := line.split())[1] == str(folder)]
    return bool(types) and types[-1] == "tmpfs"


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _remove_stale(folder: Path) -> None:
    """Remove the arenas of stores that were killed: who lives holds the lock of its file."""
    for path in folder.glob(f"{_PREFIX}*{SUFFIX}"):
        # Of another user, or just removed by another store.
        with suppress(PermissionError, FileNotFoundError):
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                continue
            finally:
                os.close(file)
