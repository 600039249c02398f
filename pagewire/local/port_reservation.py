"""Reserves a TCP port on which several processes of this user listen together (SO_REUSEPORT).

With SO_REUSEPORT, a port that another program has taken is not an error: both get a share of the
connections. So the port is first bound alone, which detects the other program, and then shared.
"""

import socket
import sys

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, require_free


class PortReservation:
    """A bound socket that takes no connections; `port` is the bound port.

    While it is open, no other program gets the port, even while none of the processes runs.

    Args:
        host: Address to listen on.
        port: Port to bind; 0 picks a free one.
        setting: Flag that errors name.

    Raises:
        StartupError: The port is taken, `host` is invalid, or the system cannot share ports.
    """

    def __init__(self, host: str, port: int, *, setting: str) -> None:
        if sys.platform != "linux":
            # Other systems cannot share ports, or give every connection to the last process.
            raise StartupError("--frontends: several on one port need Linux", field="--frontends")
        try:
            info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
        except socket.gaierror as error:
            raise StartupError(f"--host: {host}: {error.strerror}", field="--host") from error
        self._socket = socket.socket(info[0], socket.SOCK_STREAM)
        try:
            self._take(info[4])
        except OSError as error:
            self._socket.close()
            message = f"{setting}: cannot listen on {Address(host, port)}: {error.strerror}"
            raise StartupError(message, field=setting) from error
        self.port: int = self._socket.getsockname()[1]

    def close(self) -> None:
        """Release the port."""
        self._socket.close()

    def _take(self, address: tuple[object, ...]) -> None:
        # Connections of an earlier run may linger; only a listener is a reason to refuse.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(address)
        # Bound alone. From here on the port is shared with sockets that set SO_REUSEPORT, too. With
        # SO_REUSEADDR, another program could bind it while no process listens.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def require_free_port(host: str, port: int, setting: str) -> None:
    """Raise StartupError, naming `setting`, if another program has the port or `host` is bad."""
    try:
        require_free(Address(host, port), setting=setting)
    except OSError as error:
        raise StartupError(f"--host: {host}: {error.strerror}", field="--host") from error
