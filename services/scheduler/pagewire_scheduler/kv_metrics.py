"""Counters of KV stores and of loads from them, for the process's metrics endpoint. Decides
nothing."""

import enum
from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram

from pagewire_scheduler.core.block_load import LoadAnswer, LoadOrder
from pagewire_shared.kv_tier import tier_label

_UP = Gauge("pagewire_scheduler_kvstore_up", "Whether a KV store is watched", ["store"])
_NAMES = Gauge("pagewire_scheduler_kvstore_names", "Blocks that a KV store says it has", ["store"])
_LOADS = Counter("pagewire_scheduler_kv_loads", "Loads of blocks ordered", ["model"])
_CANCELS = Counter("pagewire_scheduler_kv_load_cancels", "Loads cancelled", ["model"])
_OUTCOMES = Counter("pagewire_scheduler_kv_load_outcomes", "Loads answered", ["model", "outcome"])
_TOKENS = Counter(
    "pagewire_scheduler_kv_loaded_tokens", "Tokens of blocks loaded", ["model", "tier"]
)
_BYTES = Counter("pagewire_scheduler_kv_loaded_bytes", "Bytes of blocks that came", ["model"])
_OVERDUE = Counter("pagewire_scheduler_kv_overdue_loads", "Loads that nobody waited for any longer")
_DECISIONS = Counter(
    "pagewire_scheduler_kv_decisions",
    "Decisions to load or to compute what a store has",
    ["verdict"],
)
_SECONDS = Histogram(
    "pagewire_scheduler_kv_load_seconds",
    "Time from the order of a load to its answer",
    ["model"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0),
)


Verdict = TypeVar("Verdict", bound=enum.Enum)


class StoreMeter:
    """Shows one store."""

    def __init__(self, store: str) -> None:
        self._up = _UP.labels(store)
        self._names = _NAMES.labels(store)
        self._num_names = 0
        self.turned(is_up=False)
        self.cleared()

    def turned(self, *, is_up: bool) -> None:
        """It can be reached, or cannot."""
        self._up.set(is_up)

    def changed(self, num_names: int) -> None:
        """So many names came; less than zero when they went."""
        self._num_names = max(0, self._num_names + num_names)
        self._names.set(self._num_names)

    def cleared(self) -> None:
        """Nothing is known of it."""
        self._num_names = 0
        self._names.set(0)


class LoadMeter:
    """Measures the loads of one worker; times are seconds of the caller's clock."""

    def __init__(self, model: str, block_size: int) -> None:
        self._model = model
        self._block_size = block_size
        self._ordered_at: dict[int, float] = {}

    def ordered(self, now: float, order: LoadOrder) -> None:
        """A load was sent."""
        self._ordered_at[order.load_id] = now
        _LOADS.labels(self._model).inc()

    def cancelled(self) -> None:
        """A cancel was sent."""
        _CANCELS.labels(self._model).inc()

    def answered(self, now: float, answer: LoadAnswer) -> None:
        """An answer came; one that nobody asked for is not counted."""
        ordered_at = self._ordered_at.pop(answer.load_id, None)
        if ordered_at is None:
            return
        _OUTCOMES.labels(self._model, answer.outcome.value).inc()
        _BYTES.labels(self._model).inc(answer.num_bytes)
        _SECONDS.labels(self._model).observe(now - ordered_at)
        for tier, num_blocks in answer.tiers:
            _TOKENS.labels(self._model, tier_label(tier)).inc(num_blocks * self._block_size)


class DecisionMeter:
    """Shows totals that the core keeps."""

    def __init__(self) -> None:
        self._totals: dict[str, int] = {}
        self._num_overdue = 0

    def show(self, verdicts: Mapping[Verdict, int], num_overdue: int) -> None:
        """Count what has been added since the last call."""
        totals = {str(verdict.value): total for verdict, total in verdicts.items()}
        for label, total in totals.items():
            _DECISIONS.labels(label).inc(total - self._totals.get(label, 0))
        _OVERDUE.inc(num_overdue - self._num_overdue)
        self._totals = totals
        self._num_overdue = num_overdue
