"""The folder of a deployment's sockets: private, short, swept when its owner was killed."""

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
    """A new folder that only this user can enter; `remove` it.

    Its owner holds a lock on a file in it for as long as it lives, so the next one can tell what a
    killed process left behind, and removes that.

    Raises:
        StartupError: Every place for temporary files is too long for the path of a Unix socket.
    """

    def __init__(self) -> None:
        parent = _short_parent()
        _sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Renamed only once it is locked: a folder without it is being made and left alone.
        early = self.path / "lock.new"
        self._lock = os.open(early, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        early.rename(self.path / _LOCK)
        self._is_removed = False

    def remove(self) -> None:
        """Remove the folder and what is in it. Harmless when already done."""
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
        # Gone meanwhile, somebody else's, or locked by its living owner.
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
