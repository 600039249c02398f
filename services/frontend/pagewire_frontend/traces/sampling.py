"""Decides which requests leave a trace: by chance or their client at the start, and at the end also
those that failed or were slow."""

from dataclasses import dataclass
from typing import Final

from pagewire_frontend.traces.parent import TraceParent
from pagewire_frontend.traces.request_record import RequestRecord

_RANGE = 1 << 64

TRACE_LABEL: Final = "trace_id"
"""Of the exemplars of histograms; Grafana looks for this name."""


@dataclass(frozen=True, slots=True)
class TracePolicy:
    """Which requests are traced.

    Attributes:
        ratio: Share of those without a parent, from 0 to 1. By the request id, which is random.
        slow_seconds: From this duration on, always; 0 for no such duration.
    """

    ratio: float = 1.0
    slow_seconds: float = 0.0

    def takes(self, record: RequestRecord) -> bool:
        """Return whether the request is traced."""
        if record.error or (0 < self.slow_seconds <= record.seconds):
            return True
        return self.samples(record.request_id, record.parent)

    def samples(self, request_id: bytes, parent: TraceParent | None) -> bool:
        """Return whether a request is traced however it ends."""
        if parent is not None:
            return parent.is_sampled
        return int.from_bytes(request_id[:8], "big") < self.ratio * _RANGE


def trace_name(request_id: bytes, parent: TraceParent | None) -> str:
    """Return the trace's id in hex: that of the parent, else that of the request."""
    return request_id.hex() if parent is None else f"{parent.trace_id:032x}"
