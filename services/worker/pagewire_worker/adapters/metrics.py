"""Counts the loads of adapters by where their content came from."""

from typing import Final

from prometheus_client import Counter

LOADS = Counter(
    "pagewire_worker_adapter_loads",
    "Adapters loaded into slots, by where their content was",
    ["source"],
)

MEMORY: Final = "memory"
FOLDER: Final = "folder"
PEER: Final = "peer"
STORE: Final = "store"

# rate() ignores a counter's first sample, so every label exists from the start.
for _source in (MEMORY, FOLDER, PEER, STORE):
    LOADS.labels(_source)
