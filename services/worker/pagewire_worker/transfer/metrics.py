"""Counts pulls and loads between workers for the metrics endpoint."""

from prometheus_client import Counter, Histogram

from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.kv.transport import KvTransport

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

PULLS = Counter(
    "pagewire_kv_pulls", "Pulls of other workers that ended here, by how they ended", ["outcome"]
)
PULLED_BYTES = Counter(
    "pagewire_kv_pulled_bytes", "Bytes of payload handed to other workers", ["transport"]
)
PULL_SECONDS = Histogram(
    "pagewire_kv_pull_seconds", "Time of a pull that ended here", buckets=_SECONDS
)
VOID_PULLS = Counter(
    "pagewire_kv_void_pulls", "Pulls that ended early because a step failed after layers were sent"
)
LOADS = Counter(
    "pagewire_kv_worker_loads", "Loads from other workers, by how they ended", ["outcome"]
)
LOADED_BLOCKS = Counter(
    "pagewire_kv_worker_loaded_blocks", "Blocks loaded from other workers", ["transport"]
)
LOADED_BYTES = Counter(
    "pagewire_kv_worker_loaded_bytes", "Bytes of payload that came from other workers"
)
LOAD_SECONDS = Histogram(
    "pagewire_kv_worker_load_seconds",
    "Time of a load from another worker from its first byte to the last",
    buckets=_SECONDS,
)

# rate() ignores a counter's first sample, so every label exists from the start.
for _outcome in LoadOutcome:
    LOADS.labels(_outcome.value)
for _transport in KvTransport:
    PULLED_BYTES.labels(_transport.value)
    LOADED_BLOCKS.labels(_transport.value)
for _label in ("complete", "gone", "late", "void"):
    PULLS.labels(_label)
