"""Chooses the path of the memory tier's file, which peers of the same host may map."""

import logging
from pathlib import Path

from pagewire_shared.errors import StartupError
from pagewire_shared.kv.arena_folder import (
    DEFAULT_FOLDER,
    free_bytes,
    is_in_memory,
    new_arena_path,
    remove_stale,
)

_logger = logging.getLogger(__name__)

OFF = "off"
_PREFIX = "pagewire-kv-"


def arena_path(setting: str | None, num_bytes: int) -> Path | None:
    """Return a new path for an arena; None when the memory is to be private.

    Args:
        setting: A folder, "off", or None for the host's own folder if it is in memory and has
            enough room.

    Raises:
        StartupError: The path is not a folder.
    """
    if setting == OFF:
        return None
    folder = DEFAULT_FOLDER if setting is None else Path(setting)
    if setting is None and not is_in_memory(folder):
        return None
    if not folder.is_dir():
        raise StartupError(
            f"--shared-memory-path: {folder} is no folder", field="shared_memory_path"
        )
    remove_stale(folder, _PREFIX)
    num_free = free_bytes(folder)
    if setting is None and num_free < num_bytes:
        _logger.warning(
            "no shared memory: %s has %d bytes free and %d are needed; peers of this host send"
            " blocks over gRPC (--shared-memory-path off says that this is meant)",
            folder,
            num_free,
            num_bytes,
        )
        return None
    return new_arena_path(folder, _PREFIX)
