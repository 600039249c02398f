"""Counts the offloading of a worker for its metrics endpoint."""

from prometheus_client import Counter, Histogram

from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.kv.tier import STORE_TIERS

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

OFFLOADED_BLOCKS = Counter(
    "pagewire_kv_offloaded_blocks", "Blocks that a KV store took or had already"
)
UNWANTED_BLOCKS = Counter("pagewire_kv_unwanted_blocks", "Part of them that the store had already")
OFFLOADED_BYTES = Counter("pagewire_kv_offloaded_bytes", "Bytes of payload handed to a KV store")
FLUSHED_BLOCKS = Counter(
    "pagewire_kv_flushed_blocks", "Blocks copied out right before they were written anew"
)
DROPPED_BLOCKS = Counter(
    "pagewire_kv_dropped_blocks", "Blocks that did not get to a KV store, by why", ["reason"]
)
PUT_SECONDS = Histogram("pagewire_kv_put_seconds", "Time of a put of blocks", buckets=_SECONDS)
LOADS = Counter("pagewire_kv_loads", "Loads answered, by how they ended", ["outcome"])
LOADED_BLOCKS = Counter("pagewire_kv_loaded_blocks", "Blocks loaded and used, by tier", ["tier"])
LOADED_BYTES = Counter("pagewire_kv_loaded_bytes", "Bytes of payload that loads brought")
LOAD_SECONDS = Histogram("pagewire_kv_load_seconds", "Time of a load", buckets=_SECONDS)
DAMAGED_BLOCKS = Counter(
    "pagewire_kv_damaged_blocks", "Blocks that came damaged and were not used, by why", ["reason"]
)

FAILOVERS = Counter(
    "pagewire_kv_load_failovers",
    "Loads that went on with another copy, by why the first store did not bring it",
    ["reason"],
)
COPIES = Counter(
    "pagewire_kv_copies", "Loaded blocks with too few copies, by what was done", ["outcome"]
)
MOVED_BLOCKS = Counter(
    "pagewire_kv_moved_blocks",
    "New blocks put to another store than the first of their rank, which did not take them",
)

# rate() ignores a counter's first sample, so every label exists from the start.
for _reason in ("chunk_checksum", "shared_checksum", "payload_checksum", "seal", "outside_store"):
    DAMAGED_BLOCKS.labels(_reason)
for _reason in ("queue_full", "store_down", "no_room", "copy_failed"):
    DROPPED_BLOCKS.labels(_reason)
for _tier in STORE_TIERS:
    LOADED_BLOCKS.labels(_tier)
for _reason in ("missing", "late", "failed"):
    FAILOVERS.labels(_reason)
for _done in ("put", "held", "dropped"):
    COPIES.labels(_done)
for _outcome in LoadOutcome:
    LOADS.labels(_outcome.value)
