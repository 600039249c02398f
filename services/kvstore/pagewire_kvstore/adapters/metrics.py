"""Prometheus metrics of the content of adapters."""

from typing import Final

from prometheus_client import Counter, Gauge

ADAPTERS = Gauge("pagewire_kvstore_adapters", "Adapters whose content is kept")
BYTES = Gauge("pagewire_kvstore_adapter_bytes", "Bytes of that content, with what is on its way in")
LIMIT = Gauge("pagewire_kvstore_adapter_limit_bytes", "Most bytes of it")
EVICTIONS = Counter("pagewire_kvstore_adapter_evictions", "Adapters that were removed for others")
WRITES = Counter("pagewire_kvstore_adapter_writes", "Adapters that frontends wrote", ["outcome"])
READS = Counter("pagewire_kvstore_adapter_reads", "Adapters that workers asked for", ["outcome"])

STORED: Final = "stored"
PRESENT: Final = "present"
FOUND: Final = "found"
MISSING: Final = "missing"
DAMAGED: Final = "damaged"

# Created at the start, because rate() ignores a counter's first sample.
for _outcome in (STORED, PRESENT):
    WRITES.labels(_outcome)
for _outcome in (FOUND, MISSING, DAMAGED):
    READS.labels(_outcome)
