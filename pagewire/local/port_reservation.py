"""A TCP port kept for several processes of this user that listen on it together (SO_REUSEPORT).
Never listens itself.

With SO_REUSEPORT a port that another program has taken is no error any more: both get a share of
the connections. So the port is bound alone first, which tells, and shared only then.
"""

import socket
import sys

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address


class PortReservation:
    """A bound socket that takes no connection: `port` is the one it got.

    As long as it is open nobody else gets the port, also while none of the processes runs.

    Args:
        host: Address to listen on.
        port: 0 picks one.
        setting: Flag named in errors.

    Raises:
        StartupError: The port is taken, `host` is no address, or the system cannot share ports.
    """

    def __init__(self, host: str, port: int, *, setting: str) -> None:
        if sys.platform != "linux":
            # Elsewhere the last process that binds gets every connection, or there is no sharing.
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
        """Let the port go."""
        self._socket.close()

    def _take(self, address: tuple[object, ...]) -> None:
        # Connections of an earlier run may still linger; only a listener is a reason to refuse.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(address)
        # Bound alone: from here on it is shared, but only with sockets that say so as well. Another
        # program's SO_REUSEADDR must not do, which it would while nobody listens.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
