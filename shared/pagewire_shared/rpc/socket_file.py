"""The file of a Unix socket at an address that one server after another listens on.

gRPC removes the file of a socket when it gets round to closing it, which may be after the next
server has bound the same path; that server would then be out of reach for good. So each server
binds a name of its own, and the file is moved to where clients look for it.
"""

import contextlib
import itertools
import os
from pathlib import Path


class SocketFile:
    """Where clients find the socket of the server that listens at the moment.

    Args:
        path: Of the address.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._numbers = itertools.count(1)
        self._inode: int | None = None

    def next_name(self) -> str:
        """A path that no server before has bound."""
        return f"{self._path}.{next(self._numbers)}"

    def publish(self, name: str) -> None:
        """Put what was bound under `name` in the place of what was there before."""
        inode = os.stat(name).st_ino
        os.rename(name, self._path)
        self._inode = inode

    def remove(self) -> None:
        """Remove the file, unless another process has put its own there."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
