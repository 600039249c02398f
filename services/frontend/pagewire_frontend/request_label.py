"""What the client calls an exchange, for the log: x-request-id of HTTP or of gRPC metadata. Set
where an exchange comes in, read where its request is opened; tasks in between inherit it."""

import re
from contextvars import ContextVar

# What is echoed into a header and a log line must not be able to forge either.
_LABEL = re.compile(rb"[\x21-\x7e]{1,128}")

LABEL: ContextVar[str | None] = ContextVar("request_label", default=None)


def parse_label(value: bytes) -> str | None:
    """Return the label in a header, or None where it is none: 1 to 128 visible ASCII characters."""
    return value.decode() if _LABEL.fullmatch(value) else None
