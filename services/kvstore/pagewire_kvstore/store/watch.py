"""Reports tiers that stop or start working, in the log, in status lines and in metrics."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagewire_kvstore.blocks.types import TierState
from pagewire_kvstore.store.block_store import BlockStore

_logger = logging.getLogger(__name__)

_SECONDS = 1.0

_GAUGES = {
    "num_blocks": ("pagewire_kvstore_blocks", "Blocks held"),
    "used_bytes": ("pagewire_kvstore_used_bytes", "Bytes held"),
    "capacity_bytes": ("pagewire_kvstore_capacity_bytes", "Bytes that may be held"),
}
_COUNTERS = {
    "num_hits": ("pagewire_kvstore_hits", "Loads answered"),
    "num_misses": ("pagewire_kvstore_misses", "Loads not answered"),
    "num_corrupt": ("pagewire_kvstore_corrupt", "Blocks found damaged, and never served"),
    "num_evicted": ("pagewire_kvstore_evicted_blocks", "Blocks removed to make room for others"),
    "num_faults": ("pagewire_kvstore_faults", "Times that the tier could not do its work"),
}


class TierWatch(Collector):
    """Checks the tiers every second.

    Args:
        report: Called with "degraded", the tier and a reason, or with "recovered" and the tier.
    """

    def __init__(self, store: BlockStore, report: Callable[..., Any]) -> None:
        self._store = store
        self._report = report
        self._faults: dict[str, str] = {}
        # The metrics thread reads this copy, not the tiers that the event loop changes.
        self._states: list[TierState] = store.states()

    async def run(self) -> None:
        """Check the tiers once a second, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_SECONDS)

    def look(self) -> None:
        """Report the tiers whose fault began or ended since the last call."""
        faults = self._store.faults()
        for tier, reason in faults.items():
            if tier not in self._faults:
                _logger.warning("the %s tier does not work: %s", tier, reason)
                self._report("degraded", tier=tier, reason=reason)
        for tier in self._faults.keys() - faults.keys():
            _logger.warning("the %s tier works again", tier)
            self._report("recovered", tier=tier)
        self._faults = dict(faults)
        self._states = self._store.states()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all tiers."""
        states = self._states
        for field, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["tier"])
            for state in states:
                gauge.add_metric([state.tier], getattr(state, field))
            yield gauge
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["tier"])
            for state in states:
                counter.add_metric([state.tier], getattr(state, field))
            yield counter
        working = GaugeMetricFamily(
            "pagewire_kvstore_tier_works", "1 while the tier works, else 0", labels=["tier"]
        )
        for state in states:
            working.add_metric([state.tier], int(state.fault is None))
        yield working
