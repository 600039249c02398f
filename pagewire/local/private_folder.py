"""The private folder of a deployment's sockets; a new one removes those of killed deployments."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import MAX_SOCKET_PATH_BYTES

_PREFIX = "pagewire-"
_LOCK = "lock"
_LONGEST_SOCKET_NAME = "scheduler.sock"


class PrivateFolder:
    """A new folder that only this user can enter; the owner must `remove` it.

    The owner locks a file in the folder while it lives. A later deployment thereby detects the
    folders of killed processes and removes them.

    Raises:
        StartupError: All folders for temporary files are too long for the path of a Unix socket.
    """

    def __init__(self) -> None:
        parent = _short_parent()
        _sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Renamed after locking; a folder without a lock file is being made and is left alone.
        early = self.path / "lock.new"
        self._lock = os.open(early, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        early.rename(self.path / _LOCK)
        self._is_removed = False

    def remove(self) -> None:
        """Remove the folder and its files. Has no effect when already removed."""
        if self._is_removed:
            return
        self._is_removed = True
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _short_parent() -> Path:
    for parent in (tempfile.gettempdir(), "/tmp"):
        longest = Path(parent) / f"{_PREFIX}12345678" / _LONGEST_SOCKET_NAME
        if len(os.fsencode(longest)) <= MAX_SOCKET_PATH_BYTES:
            return Path(parent)
    raise StartupError(f"TMPDIR: {tempfile.gettempdir()} is too long for a Unix socket's path")


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # The folder is gone, belongs to another user, or has a living owner.
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
