"""Keeps the content of adapters in a folder by identity, so that a file changed under its old path
changes nothing for streams. The folder is bounded in bytes: unused content that was used longest
ago is removed first."""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pagewire_shared.adapters.adapter_error import AdapterError
from pagewire_shared.adapters.adapter_folder import AdapterSummary, check_adapter
from pagewire_shared.adapters.content_id import CONFIG_NAME, WEIGHTS_NAME
from pagewire_shared.adapters.finite_values import check_finite
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_shared.errors import OverloadedError, StartupError

_logger = logging.getLogger(__name__)

_PREFIX: Final = "frontend-"
_LOCK: Final = "lock"


@dataclass(slots=True)
class _Content:
    """Content in the folder, and how often it is pinned."""

    num_bytes: int
    num_pins: int = 0


class ContentFolder:
    """The content of adapters, one folder each. `close` it: the folder goes with the process.

    `check` and `copy` block and belong into a thread, one call at a time. All other methods are
    quick, and are called on the event loop.
    """

    def __init__(self, parent: Path | None, max_bytes: int) -> None:
        """Make the folder.

        Raises:
            StartupError: Another user has the folder among the temporary files.

        Args:
            parent: Where the folder is made; None for a folder of the user's among the temporary
                files.
            max_bytes: Most bytes of all content.
        """
        self.max_bytes = max_bytes
        if parent is None:
            parent = _private_folder()
        parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(parent)
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).resolve()
        self._lock = os.open(self._folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._content: dict[bytes, _Content] = {}  # the one used longest ago comes first
        self._leaving: list[bytes] = []  # not content any more; `copy` removes their files

    @property
    def num_bytes(self) -> int:
        """Bytes of all content."""
        return sum(content.num_bytes for content in self._content.values())

    def find(self, adapter_id: bytes) -> Path | None:
        """Return the folder of an adapter, or None."""
        return self._path(adapter_id) if adapter_id in self._content else None

    def pin(self, adapter_id: bytes) -> bool:
        """Keep content until `unpin`; return False where it is gone."""
        content = self._content.pop(adapter_id, None)
        if content is None:
            return False
        content.num_pins += 1
        self._content[adapter_id] = content
        return True

    def unpin(self, adapter_id: bytes) -> None:
        """Let content go, once for each `pin`."""
        self._content[adapter_id].num_pins -= 1

    def check(self, source: Path, bounds: AdapterBounds, root: Path | None) -> AdapterSummary:
        """Return what the adapter in a folder is made of. It blocks. Raises AdapterError."""
        return check_adapter(source, bounds, root=root)

    def reserve(self, summary: AdapterSummary) -> bool:
        """Make room for content, which is pinned; return whether it has to be copied.

        Raises:
            OverloadedError: What is in use leaves no room.
        """
        if self.pin(summary.adapter_id):
            return False
        left = self.max_bytes - summary.num_bytes - self.num_bytes
        leaving = []
        for adapter_id, content in self._content.items():
            if left >= 0:
                break
            if not content.num_pins:
                left += content.num_bytes
                leaving.append(adapter_id)
        if left < 0:
            raise OverloadedError(
                f"the adapter has {summary.num_bytes} bytes, and those in use leave no room of the "
                f"{self.max_bytes} bytes for adapters (--lora-store-bytes)"
            )
        for adapter_id in leaving:
            del self._content[adapter_id]
        self._leaving += leaving
        return True

    def copy(
        self, source: Path, summary: AdapterSummary, bounds: AdapterBounds, root: Path | None
    ) -> None:
        """Copy the content, once what leaves for it is removed. It blocks.

        Raises:
            AdapterError: It has changed since `check`, or has values that are not finite.
        """
        while self._leaving:
            self._remove(self._leaving.pop())
        adapter_id, target = summary.adapter_id, self._path(summary.adapter_id)
        with tempfile.TemporaryDirectory(dir=self._folder) as temporary:
            copied = Path(temporary) / "content"
            copied.mkdir()
            for name in (CONFIG_NAME, WEIGHTS_NAME):
                _copy_file(source / name, copied / name, root or source)
            if check_adapter(copied, bounds).adapter_id != adapter_id:
                raise AdapterError("the adapter changed while it was read", WEIGHTS_NAME)
            check_finite(copied, summary)
            shutil.rmtree(target, ignore_errors=True)
            copied.rename(target)

    def enter(self, summary: AdapterSummary) -> None:
        """Note content that was copied; it is pinned once."""
        self._content[summary.adapter_id] = _Content(summary.num_bytes, 1)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock)

    def _path(self, adapter_id: bytes) -> Path:
        return self._folder / adapter_id.hex()

    def _remove(self, adapter_id: bytes) -> None:
        shutil.rmtree(self._path(adapter_id), ignore_errors=True)
        _logger.info("removed the content of adapter %s", adapter_id.hex()[:16])


def _private_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"pagewire-adapters-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise StartupError(f"{folder} is not a folder of this user", field="lora_store")
    return folder


def _copy_file(source: Path, target: Path, root: Path) -> None:
    """Copy a regular file that lies in `root`; links are followed within it only."""
    try:
        real = source.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise AdapterError(f"{source.name}: it is a link that leaves the folder", source.name)
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file, target.open("xb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    except OSError as error:
        reason = error.strerror or str(error)
        raise AdapterError(f"{source.name} cannot be copied: {reason}", source.name) from error


def _remove_left_over(parent: Path) -> None:
    """Remove the folders of processes that were killed: their locks are free."""
    for folder in _left_over(parent):
        shutil.rmtree(folder, ignore_errors=True)


def _left_over(parent: Path) -> Iterator[Path]:
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield folder
            finally:
                os.close(descriptor)
