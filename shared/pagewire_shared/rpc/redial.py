"""How long to wait between two attempts to reach a peer."""

import asyncio
import os

from pagewire_shared.rpc.address import Address

LOOK_SECONDS = 0.02


class Redial:
    """Waits between attempts, and no longer when another server has begun to listen.

    A server puts the file of its Unix socket in place when it takes calls (socket_file.py), so that
    a new file is the moment to dial. Of a TCP address nothing is seen.

    Args:
        address: Of the peer.
    """

    def __init__(self, address: Address) -> None:
        self._path = address.path if address.is_unix else None
        self._dialled = self._look()

    def begin(self) -> None:
        """An attempt begins: it meets what listens now."""
        self._dialled = self._look()

    async def wait(self, seconds: float) -> None:
        """Return after `seconds`, or when there is a socket that the last attempt cannot have
        met."""
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
        """Return what tells one file at the path from the next; the system uses inodes again."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_ctime_ns
