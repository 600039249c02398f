"""Prometheus metrics of the store's streams."""

from prometheus_client import Counter, Gauge, Histogram

from pagewire_shared.kv.tier import STORE_TIERS

STREAMS = Gauge("pagewire_kvstore_streams", "Streams open", ["kind"])
REFUSED = Counter("pagewire_kvstore_refused", "Streams ended by the store", ["kind", "reason"])
NO_ROOM = Counter("pagewire_kvstore_no_room_blocks", "Announced blocks left out for want of room")
PUT_BYTES = Counter("pagewire_kvstore_put_bytes", "Payload bytes taken in", ["transport"])
GET_BYTES = Counter("pagewire_kvstore_get_bytes", "Payload bytes given", ["tier", "transport"])
MISSING = Counter("pagewire_kvstore_missing_blocks", "Blocks asked for that are not there")
EXIST_NAMES = Counter(
    "pagewire_kvstore_exist_names", "Blocks asked after by Exist, by what was answered", ["answer"]
)
PINNED = Gauge("pagewire_kvstore_pinned_blocks", "Blocks that a lease keeps from eviction")

_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
PUT_SECONDS = Histogram(
    "pagewire_kvstore_put_seconds", "From an announcement to its publishing", buckets=_BUCKETS
)
GET_SECONDS = Histogram("pagewire_kvstore_get_seconds", "Whole loads", buckets=_BUCKETS)

GRPC = "grpc"
SHARED_MEMORY = "shared_memory"

for _answer in ("held", "missing"):
    EXIST_NAMES.labels(_answer)
# Created at the start, because rate() ignores a counter's first sample.
for _transport in (GRPC, SHARED_MEMORY):
    PUT_BYTES.labels(_transport)
    for _tier in STORE_TIERS:
        GET_BYTES.labels(_tier, _transport)
