"""Staging memory for layers on their way to other workers: bounded, and made on first use.

If the host has a folder in memory with enough room, it is a file that workers of that host may map.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_shared.kv.arena import Arena, ArenaFacts
from pagewire_shared.kv.arena_folder import (
    DEFAULT_FOLDER,
    arena_facts,
    free_bytes,
    is_in_memory,
    new_arena_path,
    remove_stale,
)
from pagewire_shared.kv.extents import GRANULE_BYTES, Extents

_logger = logging.getLogger(__name__)

PREFIX = "pagewire-staging-"


class Staging:
    """Memory whose regions any thread may take and give back.

    Args:
        num_bytes: Size; rounded up to whole pages.
        is_shared: Whether other workers may map it, if the host has a folder in memory.
        folder: That folder.
        pin: See DeviceCopies; by default the memory is not pinned.
    """

    def __init__(
        self,
        num_bytes: int,
        *,
        is_shared: bool,
        folder: Path = DEFAULT_FOLDER,
        pin: Callable[[Tensor], Callable[[], None]] | None = None,
    ) -> None:
        self.num_bytes = -(-num_bytes // GRANULE_BYTES) * GRANULE_BYTES
        self.facts: ArenaFacts | None = None
        """Location of the file for other workers; None before it is made, and if it is private."""
        self._is_shared = is_shared
        self._folder = folder
        self._arena: Arena | None = None
        self._bytes: Tensor | None = None
        self._pin = pin
        self._unpin: Callable[[], None] | None = None
        self._making = threading.Lock()
        self._guard = threading.Lock()
        self._extents = Extents(self.num_bytes)

    @property
    def num_free_bytes(self) -> int:
        """Bytes outside of all regions."""
        with self._guard:
            return self._extents.free_bytes

    def make(self) -> None:
        """Make the memory, unless it exists; takes some ten milliseconds.

        Raises:
            StartupError: There is too little memory.
        """
        with self._making:
            if self._bytes is not None:
                return
            self._arena = self._make_shared() or Arena(self.num_bytes)
            # Through numpy, which keeps the mapping for as long as the tensor lives.
            memory = torch.from_numpy(np.frombuffer(self._arena.memory, dtype=np.uint8))
            if self._pin is not None:
                self._unpin = self._pin(memory)
            self._bytes = memory

    def take(self, num_bytes: int) -> int | None:
        """Return the offset of a region of `num_bytes`; None if no free region is large enough."""
        with self._guard:
            return self._extents.allocate(num_bytes)

    def give_back(self, offset: int) -> None:
        """Free the region at `offset`."""
        with self._guard:
            self._extents.free(offset)

    def region(self, offset: int, num_bytes: int) -> Tensor:
        """Return the memory of a region, uint8 [num_bytes]; after `make`."""
        assert self._bytes is not None, "the staging memory was not made"
        return self._bytes[offset : offset + num_bytes]

    def view(self, offset: int, num_bytes: int) -> memoryview:
        """Return the bytes of a region without a copy; after `make`."""
        assert self._arena is not None, "the staging memory was not made"
        return self._arena.view(offset, num_bytes)

    def close(self) -> None:
        """Remove the file; regions in use stay mapped until they are released.

        No copy to or from a device may be under way.
        """
        with self._making:
            if self._unpin is not None:
                self._unpin()
                self._unpin = None
            self._bytes = None
            arena, self._arena = self._arena, None
        if arena is not None:
            arena.close()

    def _make_shared(self) -> Arena | None:
        if not self._is_shared or not is_in_memory(self._folder):
            return None
        with contextlib.suppress(OSError):
            remove_stale(self._folder, PREFIX)
        num_free = free_bytes(self._folder)
        if num_free < self.num_bytes:
            _logger.warning(
                "no shared memory: %s has %d bytes free and --kv-staging-memory is %d; workers of"
                " this host are sent blocks over gRPC",
                self._folder,
                num_free,
                self.num_bytes,
            )
            return None
        path = new_arena_path(self._folder, PREFIX)
        try:
            arena = Arena(self.num_bytes, path)
        except StartupError as error:
            # Another process took the room meanwhile, or the folder is read-only.
            _logger.warning("no shared memory: %s", error)
            return None
        self.facts = arena_facts(path)
        return arena
