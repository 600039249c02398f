"""Limits of one client connection: counts, bytes and seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of the connections of a gateway.

    Attributes:
        max_connections: Open at once; idle ones make room, then more are answered with 503.
        max_idle_per_address: Without a request, of one address; 0 for any number.
        max_header_bytes: Request line and headers of one request.
        max_header_count: Header lines of one request.
        max_target_bytes: Path and query of one request.
        head_seconds: From the first moment of a request until its headers are complete.
        body_idle_seconds: Between two pieces of a body.
        body_seconds: From the headers until the body is complete.
        keep_alive_seconds: Between two requests.
        stall_seconds: While bytes are ready and the client takes none.
    """

    max_connections: int = 4096
    max_idle_per_address: int = 512
    max_header_bytes: int = 64 * 1024
    max_header_count: int = 128
    max_target_bytes: int = 8 * 1024
    head_seconds: float = 10.0
    body_idle_seconds: float = 20.0
    body_seconds: float = 300.0
    keep_alive_seconds: float = 75.0
    stall_seconds: float = 120.0
