"""Waits between two attempts to reach a peer, and returns early when a new server listens."""

import asyncio
import os

from pagewire_shared.rpc.address import Address

LOOK_SECONDS = 0.02


class Redial:
    """Waits between attempts; a new server that listens ends the wait early.

    A server publishes the file of its Unix socket when it takes calls (SocketFile), so a new
    file is the moment to dial. A TCP address gives no such sign.
    """

    def __init__(self, address: Address) -> None:
        self._path = address.path if address.is_unix else None
        self._dialled = self._look()

    def begin(self) -> None:
        """Note the socket file at the begin of an attempt."""
        self._dialled = self._look()

    async def wait(self, seconds: float) -> None:
        """Return after `seconds`, or when the socket file is newer than the last attempt."""
        if self._path is None:
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0.0:
            if self._look() not in (None, self._dialled):
                return
            await asyncio.sleep(min(left, LOOK_SECONDS))

    def _look(self) -> tuple[int, int] | None:
        """Return inode and change time of the file; inodes alone are reused."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns
