"""Reads the trace that a client's request belongs to: W3C Trace Context, in headers of HTTP and in
metadata of gRPC."""

import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

# https://www.w3.org/TR/trace-context/#traceparent-header
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NOT_A_VERSION: Final = "ff"
_SAMPLED: Final = 1

MAX_STATE_CHARS: Final = 512
"""Longest `tracestate` that goes on; the standard asks for at least as many."""


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The span of the client.

    Attributes:
        trace_id: 128 bits.
        span_id: 64 bits.
        is_sampled: Whether the client records its own spans.
        state: Its `tracestate`; "" for none.
    """

    trace_id: int
    span_id: int
    is_sampled: bool
    state: str = ""


PARENT: ContextVar[TraceParent | None] = ContextVar("trace_parent", default=None)
"""Set where a request comes in, and read where its session is opened."""


def parse_parent(text: str, state: str = "") -> TraceParent | None:
    """Return the parent in a `traceparent`; None for a text that is not one. The standard asks to
    go on without a parent then."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == _NOT_A_VERSION or (version == "00" and rest):
        return None
    if not int(trace_id, 16) or not int(span_id, 16):
        return None
    is_sampled = bool(int(flags, 16) & _SAMPLED)
    kept = state if len(state) <= MAX_STATE_CHARS else ""
    return TraceParent(int(trace_id, 16), int(span_id, 16), is_sampled, kept)


def parent_in(pairs: Iterable[tuple[str | bytes, str | bytes]] | None) -> TraceParent | None:
    """Return the parent in headers or metadata, whose names are in lower case."""
    parent = state = ""
    for name, value in pairs or ():
        if name in (b"traceparent", "traceparent"):
            parent = _text(value)
        elif name in (b"tracestate", "tracestate"):
            state = _text(value)
    return parse_parent(parent, state) if parent else None


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")
