"""Accepts TLS for HTTP with the present certificate, and bounds handshakes.

Servers of asyncio and uvloop show a connection only after its handshake. They make its TLS object
from their context before, so a connection is counted there, and gets the certificate of now there.
"""

import ssl
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from pagewire_frontend.access.public_tls import PublicTls

MAX_HANDSHAKES: Final = 1024
"""Handshakes under way at once; further connections are ended."""


class TlsGate(ssl.SSLContext):
    """The context of a server; `begin` tells it what to accept with."""

    _tls: PublicTls
    _seconds: float
    _clock: Callable[[], float]
    _pending: "list[tuple[weakref.ref[ssl.SSLObject], float]]"

    @classmethod
    def of(
        cls, tls: PublicTls, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> "TlsGate":
        """Return a gate; `seconds` is the time of a handshake, after which the loop ends it."""
        gate = cls(ssl.PROTOCOL_TLS_SERVER)
        gate._tls, gate._seconds, gate._clock, gate._pending = tls, seconds, clock, []
        return gate

    def wrap_bio(  # type: ignore[override]
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any
    ) -> ssl.SSLObject:
        """Return the TLS object of a new connection."""
        made = self._tls.context().wrap_bio(incoming, outgoing, **options)
        if len(self._pending) >= MAX_HANDSHAKES:
            self._forget()
        if len(self._pending) >= MAX_HANDSHAKES:
            incoming.write_eof()  # so the handshake ends as it begins
        else:
            self._pending.append((weakref.ref(made), self._clock()))
        return made

    def _forget(self) -> None:
        """Forget handshakes that are complete, have failed, or are out of time."""
        oldest = self._clock() - self._seconds
        self._pending = [
            (reference, began)
            for reference, began in self._pending
            # There is no version before the handshake is complete.
            if (made := reference()) is not None and made.version() is None and began > oldest
        ]
