"""The client's label of a request, for the log: x-request-id of HTTP or of gRPC metadata.

The label is set where a request comes in and read where its session is opened; tasks in between
inherit it.
"""

import re
from collections.abc import Iterable
from contextvars import ContextVar

# A label is echoed into a header and a log line, and must not be able to forge either.
_LABEL = re.compile(rb"[\x21-\x7e]{1,128}")

METADATA_KEY = "x-request-id"
"""Key of the label in gRPC metadata."""

IDEMPOTENCY_KEY = "idempotency-key"
"""Header, and key in gRPC metadata, of the key under which a request is generated once."""

LABEL: ContextVar[str | None] = ContextVar("request_label", default=None)

PEER: ContextVar[str | None] = ContextVar("request_peer", default=None)
"""Address that the request came from: of its client, or of a proxy in front."""


def parse_label(value: bytes) -> str | None:
    """Return the label in a header, 1 to 128 visible ASCII characters; None for any other value."""
    return value.decode() if _LABEL.fullmatch(value) else None


def label_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """Return the label in the metadata of a gRPC call; None without a valid one."""
    for key, value in metadata or ():
        if key == METADATA_KEY:
            return parse_label(value if isinstance(value, bytes) else value.encode())
    return None
