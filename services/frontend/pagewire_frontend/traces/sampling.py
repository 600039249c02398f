"""Decides which requests leave a trace. It decides at their end: those that failed or were slow are
always among them."""

from dataclasses import dataclass

from pagewire_frontend.traces.request_record import RequestRecord

_RANGE = 1 << 64


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
        if record.parent is not None:
            return record.parent.is_sampled
        return int.from_bytes(record.request_id[:8], "big") < self.ratio * _RANGE
