"""Opens the connections between the hosts of a group, each with a handshake."""

import contextlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address
from pagewire_worker.parallel.rank_task import HostLink
from pagewire_worker.rank_hosts.handshake import (
    Facts,
    HostGoneError,
    HostRefusedError,
    accept,
    admit,
    has_news,
    introduce,
    refuse,
)
from pagewire_worker.rank_hosts.layout import HostLayout

DIAL_SECONDS: Final = 5.0
LINKS_SECONDS: Final = 30.0
"""Until all hosts have dialled each other, once all are there."""

_BACKLOG: Final = 64
_MOST_HANDSHAKES: Final = 32
"""At once: who says nothing holds up no other host. More wait in the system's queue."""
_LOOK_SECONDS: Final = 0.02

_logger = logging.getLogger(__name__)


class HostListener:
    """Listens for other hosts of a group, in the clear: handshakes prove the key, no more.

    Args:
        address: Port 0 picks a free port.

    Attributes:
        address: With the port.

    Raises:
        StartupError: The address cannot be had, or is one of a Unix socket.
    """

    def __init__(self, address: Address, key: bytes) -> None:
        self._key = key
        self._admitted: queue.SimpleQueue[tuple[socket.socket, dict[str, Any]]] = (
            queue.SimpleQueue()
        )
        self._handshakes = threading.BoundedSemaphore(_MOST_HANDSHAKES)
        if address.is_unix:
            raise StartupError("--rank-listen: ranks need host:port", field="rank_listen")
        try:
            family = socket.getaddrinfo(address.host, None, type=socket.SOCK_STREAM)[0][0]
            self._socket = socket.socket(family, socket.SOCK_STREAM)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address.host, address.port))
            self._socket.listen(_BACKLOG)
            # One that has gone before it is taken in must not be waited for.
            self._socket.settimeout(_LOOK_SECONDS)
        except OSError as error:
            reason = error.strerror or error
            raise StartupError(
                f"--rank-listen: cannot listen on {address}: {reason}", field="rank_listen"
            ) from error
        self.address = Address(address.host, self._socket.getsockname()[1])

    def next_host(self, seconds: float) -> tuple[socket.socket, dict[str, Any]] | None:
        """Return a connection of a host that has the key, and its facts; None if none comes.

        The caller accepts or refuses it. Others are refused here, and the log has them.
        """
        deadline = time.monotonic() + seconds
        while True:
            while self._handshakes.acquire(blocking=False):
                if not has_news(self._socket):
                    self._handshakes.release()
                    break
                self._begin()
            with contextlib.suppress(queue.Empty):
                return self._admitted.get(timeout=_LOOK_SECONDS)
            if time.monotonic() > deadline:
                return None

    def _begin(self) -> None:
        """Begin a handshake, in a thread of its own."""
        try:
            peer, where = self._socket.accept()
        except OSError as error:
            self._handshakes.release()
            _logger.warning("a host of ranks cannot be taken in: %s", error.strerror or error)
            return
        thread = threading.Thread(
            target=self._admit, args=(peer, where[0]), name="rank-handshake", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._handshakes.release()
            _logger.warning("no host of ranks from %s: %s", where[0], error)
            peer.close()

    def _admit(self, peer: socket.socket, where: str) -> None:
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._admitted.put((peer, admit(peer, self._key)))
        except (HostRefusedError, HostGoneError, OSError) as error:
            _logger.warning("no host of ranks from %s: %s", where, error)
            peer.close()
        finally:
            self._handshakes.release()

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._admitted.get_nowait()[0].close()


def dial(address: Address, key: bytes, facts: Facts) -> socket.socket:
    """Return a connection to another host, which has accepted these facts.

    Raises:
        HostGoneError: It is not there.
        HostRefusedError: It is another group's, or refuses the facts.
    """
    try:
        peer = socket.create_connection((address.host, address.port), DIAL_SECONDS)
    except OSError as error:
        raise HostGoneError(f"{address}: {error.strerror or error}") from error
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        introduce(peer, key, facts)
    except (HostRefusedError, HostGoneError) as error:
        peer.close()
        raise type(error)(f"{address}: {error}") from None
    return peer


class LinkTable:
    """Collects the connections of the ranks of one host to those of the others."""

    def __init__(self, layout: HostLayout, host: int) -> None:
        self._layout = layout
        self._host = host
        self._found: dict[tuple[int, int], socket.socket] = {}

    def dial(self, host: int, address: Address, key: bytes, generation: str) -> None:
        """Dial another host once for each rank. Raises HostGoneError or HostRefusedError."""
        for place in range(self._layout.per_host):
            facts = {"generation": generation, "host": self._host, "place": place}
            self._found[host, place] = dial(address, key, facts)

    def collect(self, listener: HostListener, hosts: Iterable[int], generation: str) -> None:
        """Wait for the connections of `hosts`, which dial this one. Raises HostGoneError."""
        missing = {(host, place) for host in hosts for place in range(self._layout.per_host)}
        deadline = time.monotonic() + LINKS_SECONDS
        while missing:
            left = deadline - time.monotonic()
            if left <= 0:
                number = min(missing)[0]
                raise HostGoneError(f"host {number} has not reached host {self._host} in time")
            found = listener.next_host(left)
            if found is None:
                continue
            peer, facts = found
            name = _number(facts, "host"), _number(facts, "place")
            try:
                if facts.get("generation") != generation or name not in missing:
                    refuse(peer, "this is another start of the group")
                accept(peer)
            except (HostRefusedError, HostGoneError) as error:
                _logger.warning("no connection of ranks: %s", error)
                peer.close()
                continue
            missing.discard(name)
            self._found[name] = peer

    def links(self) -> Mapping[int, list[HostLink]]:
        """Return the links of each rank of this host; their sockets are the caller's."""
        layout = self._layout
        made: dict[int, list[HostLink]] = {rank: [] for rank in layout.ranks_of(self._host)}
        for (host, place), peer in sorted(self._found.items()):
            # The ranks wait in the sockets themselves.
            peer.settimeout(None)
            first, rank = layout.ranks_of(host).start, layout.ranks_of(self._host)[place]
            link = HostLink(peer.detach(), first, layout.per_host, first + place)
            made[rank].append(link)
        self._found.clear()
        return made

    def close(self) -> None:
        """Close what has not become a link."""
        for peer in self._found.values():
            peer.close()


def _number(facts: Facts, name: str) -> int:
    value = facts.get(name)
    return value if isinstance(value, int) else -1
