"""Tracks connections without a request: bounds them per address, and closes idle ones to make room.

They cost a client nothing, so they are closed first: the connection that has been idle for longest.
Closing one is legal at any time between two requests (RFC 9112, section 9.5).
"""

import ipaddress
from collections import OrderedDict
from typing import Protocol


class Closable(Protocol):
    """A connection."""

    def close_idle(self) -> None:
        """End the connection, which has no request."""
        ...


_Idle = OrderedDict[Closable, None]


class IdleConnections:
    """Connections without a request, in the order in which they became idle."""

    def __init__(self, max_per_address: int) -> None:
        """Create the idle connections.

        Args:
            max_per_address: 0 for any number; connections of this host are not counted.
        """
        self._max = max_per_address
        self._all: OrderedDict[Closable, str | None] = OrderedDict()
        self._by_address: dict[str, _Idle] = {}

    def enter(self, connection: Closable, address: str | None) -> None:
        """Add an idle connection; beyond the limit of its address the oldest is closed."""
        if self._max == 0 or address is None or is_own(address):
            address = None
        self.leave(connection)
        self._all[connection] = address
        if address is None:
            return
        group = self._by_address.setdefault(address, OrderedDict())
        group[connection] = None
        if len(group) > self._max:
            self._close(next(iter(group)))

    def leave(self, connection: Closable) -> None:
        """Remove a connection that has a request or is gone; again is allowed."""
        address = self._all.pop(connection, None)
        if address is not None:
            group = self._by_address[address]
            del group[connection]
            if not group:
                del self._by_address[address]

    def make_room(self, for_whom: Closable) -> bool:
        """Close the connection that has been idle for longest; return whether there was one besides
        `for_whom`."""
        oldest = next((item for item in self._all if item is not for_whom), None)
        if oldest is None:
            return False
        self._close(oldest)
        return True

    def _close(self, connection: Closable) -> None:
        self.leave(connection)
        connection.close_idle()


def is_own(address: str) -> bool:
    """Return whether an address is this host's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return True
