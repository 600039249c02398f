"""Metrics of the KV events that are published."""

from prometheus_client import Counter, Gauge

_BATCHES = Counter(
    "pagewire_scheduler_kv_event_batches", "Batches of KV events that were published"
)
_CHANGES = Counter(
    "pagewire_scheduler_kv_event_blocks", "Blocks in them, by what happened", ["kind"]
)
_DROPPED = Counter(
    "pagewire_scheduler_kv_event_dropped_batches",
    "Batches of KV events that were not published, since the publishing thread had too many",
)
_REQUESTS = Counter(
    "pagewire_scheduler_kv_event_requests", "Requests of subscribers, by outcome", ["kind"]
)
_UP = Gauge("pagewire_scheduler_kv_events_up", "1 while KV events are published")

REQUEST_KINDS = ("replay", "snapshot", "no_snapshot", "malformed")
CHANGE_KINDS = ("stored", "removed", "cleared")


class KvEventMeter:
    """Counts what the publishing thread does; its methods may be called by any thread."""

    def __init__(self) -> None:
        for kind in REQUEST_KINDS:
            _REQUESTS.labels(kind)
        for kind in CHANGE_KINDS:
            _CHANGES.labels(kind)

    def published(self, kinds: dict[str, int]) -> None:
        """Count a batch with so many changes of each kind."""
        _BATCHES.inc()
        for kind, num in kinds.items():
            _CHANGES.labels(kind).inc(num)

    def dropped(self) -> None:
        """Count a batch that found no room."""
        _DROPPED.inc()

    def requested(self, kind: str) -> None:
        """Count a request."""
        _REQUESTS.labels(kind).inc()

    def turned(self, *, is_up: bool) -> None:
        """Show whether events are published."""
        _UP.set(is_up)
