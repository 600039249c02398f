"""Watches the folder of --lora-dir: every sub-folder is an adapter of its name."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Final

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.errors import OverloadedError, PagewireError

_logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 2.0
"""Time between two looks."""

MAX_FOLDERS: Final = 10_000
"""Sub-folders that are looked at."""

Stamp = tuple[int, int, int, int]
"""Times and sizes of both files: another one after a change."""


class FolderWatch:
    """Loads and unloads adapters as their folders come, change and go. Adapters that were loaded in
    another way are left alone."""

    def __init__(self, folder: str, adapters: AdapterRegistry, *, base_model: str = "") -> None:
        self._folder = Path(folder).expanduser().resolve()
        self._adapters = adapters
        self._base_model = base_model
        self._seen: dict[str, Stamp] = {}
        self._loaded: set[str] = set()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Load what is new or changed, and unload what is gone. Faults are logged; what the names
        stand for stays then."""
        found = await asyncio.to_thread(_stamps, self._folder)
        if found is None:
            return
        for name, stamp in found.items():
            if self._seen.get(name) != stamp:
                self._seen[name] = stamp
                await self._load(name)
        for name in [name for name in self._seen if name not in found]:
            del self._seen[name]
            if name in self._loaded and self._adapters.find(name) is not None:
                await self._adapters.unload(name)
            self._loaded.discard(name)

    async def _load(self, name: str) -> None:
        known = self._adapters.find(name)
        if known is not None and name not in self._loaded:
            _logger.warning("--lora-dir: the name %r is taken by another adapter", name)
            return
        try:
            await self._adapters.load(
                name, self._folder / name, self._folder, base_model=self._base_model
            )
            self._loaded.add(name)
        except OverloadedError as error:
            del self._seen[name]  # it is tried again at the next look
            _logger.warning("--lora-dir: %s: %s", name, error.message)
        except PagewireError as error:
            # What the name stood for stays: a file may be half written, and is looked at again.
            _logger.warning("--lora-dir: %s: %s", name, error.message)


def _stamps(folder: Path) -> dict[str, Stamp] | None:
    """Return what the sub-folders hold; None where the folder cannot be read."""
    found: dict[str, Stamp] = {}
    try:
        entries = sorted(entry.name for entry in os.scandir(folder) if not _is_hidden(entry.name))
    except OSError as error:
        _logger.warning("--lora-dir: %s cannot be read: %s", folder, error.strerror)
        return None
    if len(entries) > MAX_FOLDERS:
        _logger.warning(
            "--lora-dir: %d sub-folders, of which the first %d are read", len(entries), MAX_FOLDERS
        )
    for name in entries[:MAX_FOLDERS]:
        try:
            config = (folder / name / CONFIG_NAME).stat()
            weights = (folder / name / WEIGHTS_NAME).stat()
        except OSError:
            continue  # no adapter, or not yet
        found[name] = (
            config.st_mtime_ns,
            config.st_size,
            weights.st_mtime_ns,
            weights.st_size,
        )
    return found


def _is_hidden(name: str) -> bool:
    return name.startswith(".")
