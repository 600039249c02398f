"""The file of a Unix socket at an address that consecutive servers use.

gRPC removes the file when it closes a socket, maybe after the next server has bound the same path;
that server would then be unreachable. So each server binds its own name, and the file is moved to
the path of the address.
"""

import contextlib
import itertools
import os
from pathlib import Path


class SocketFile:
    """The path at which clients find the socket of the present server."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._numbers = itertools.count(1)
        self._inode: int | None = None

    def next_name(self) -> str:
        """Return a path that no earlier server has bound."""
        return f"{self._path}.{next(self._numbers)}"

    def publish(self, name: str) -> None:
        """Move the socket bound at `name` to the path of the address."""
        inode = os.stat(name).st_ino
        os.rename(name, self._path)
        self._inode = inode

    def remove(self) -> None:
        """Remove the file, unless another process has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()
