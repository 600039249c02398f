"""Metrics of KV stores, of loads from them and of hand-offs between workers."""

import enum
from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Counter, Gauge, Histogram

from pagewire_scheduler.core.costs.handoff_cost import HandoffReason
from pagewire_scheduler.core.costs.load_cost import LoadReason as LoadVerdict
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_shared.kv.tier import STORE_TIERS, tier_label
from pagewire_shared.kv.transport import KvTransport

_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

_UP = Gauge("pagewire_scheduler_kvstore_up", "Whether a KV store is watched", ["store"])
_NAMES = Gauge("pagewire_scheduler_kvstore_names", "Blocks that a KV store says it has", ["store"])
_LOADS = Counter("pagewire_scheduler_kv_loads", "Loads of blocks ordered", ["model"])
_CANCELS = Counter("pagewire_scheduler_kv_load_cancels", "Loads cancelled", ["model"])
_OUTCOMES = Counter("pagewire_scheduler_kv_load_outcomes", "Loads answered", ["model", "outcome"])
_TOKENS = Counter(
    "pagewire_scheduler_kv_loaded_tokens", "Tokens of blocks loaded", ["model", "tier"]
)
_BYTES = Counter("pagewire_scheduler_kv_loaded_bytes", "Bytes of blocks that came", ["model"])
_UNCOPIED = Counter(
    "pagewire_scheduler_kv_uncopied_blocks",
    "Blocks ordered that fewer stores had than --kvstore-copies",
)
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
    buckets=_BUCKETS,
)
_HANDOFFS = Counter(
    "pagewire_scheduler_handoffs", "Loads from other workers answered", ["model", "outcome"]
)
_HANDOFF_DECISIONS = Counter(
    "pagewire_scheduler_handoff_decisions",
    "Decisions where a prompt is computed, while there was a choice",
    ["verdict"],
)
_MOVES = Counter(
    "pagewire_scheduler_moves", "Sequences that took their blocks along to another worker"
)
_HANDOFF_BYTES = Counter(
    "pagewire_scheduler_handoff_bytes",
    "Bytes of blocks that came from other workers",
    ["model", "transport"],
)
_HANDOFF_SECONDS = Histogram(
    "pagewire_scheduler_handoff_seconds",
    "Time from the order of a load from another worker to its answer",
    ["model"],
    buckets=_BUCKETS,
)
_HANDOFF_TRANSFER = Histogram(
    "pagewire_scheduler_handoff_transfer_seconds",
    "Part of it from the first byte to the last",
    ["model"],
    buckets=_BUCKETS,
)

LoadReason = TypeVar("LoadReason", bound=enum.Enum)


class StoreMeter:
    """Metrics of one store."""

    def __init__(self, store: str) -> None:
        self._up = _UP.labels(store)
        self._names = _NAMES.labels(store)
        self._num_names = 0
        self.turned(is_up=False)
        self.cleared()

    def turned(self, *, is_up: bool) -> None:
        """Show whether the store can be reached."""
        self._up.set(is_up)

    def changed(self, num_names: int) -> None:
        """Add `num_names` to the known names; below zero for removed ones."""
        self._num_names = max(0, self._num_names + num_names)
        self._names.set(self._num_names)

    def cleared(self) -> None:
        """Reset the known names to none."""
        self._num_names = 0
        self._names.set(0)


class LoadMeter:
    """Measures the loads of one worker, hand-offs from other workers apart from loads from stores;
    times are seconds of the caller's clock."""

    def __init__(self, model: str, tokens_per_block: int) -> None:
        self._model = model
        self._tokens_per_block = tokens_per_block
        _introduce(model)
        self._stores: dict[int, float] = {}
        self._handoffs: dict[int, float] = {}

    def ordered(self, now: float, order: LoadOrder) -> None:
        """Note an order that was sent."""
        if order.worker is not None:
            self._handoffs[order.load_id] = now
            return
        self._stores[order.load_id] = now
        _LOADS.labels(self._model).inc()

    def cancelled(self, load_id: int) -> None:
        """Note a cancel that was sent. A hand-off shows it in its outcome."""
        if load_id not in self._handoffs:
            _CANCELS.labels(self._model).inc()

    def answered(self, now: float, answer: LoadAnswer) -> None:
        """Note an answer; one to an unknown load is not counted."""
        handed_off_at = self._handoffs.pop(answer.load_id, None)
        if handed_off_at is not None:
            self._handed_off(now - handed_off_at, answer)
            return
        ordered_at = self._stores.pop(answer.load_id, None)
        if ordered_at is None:
            return
        _OUTCOMES.labels(self._model, answer.outcome.value).inc()
        _BYTES.labels(self._model).inc(answer.num_bytes)
        _SECONDS.labels(self._model).observe(now - ordered_at)
        for tier, num_blocks in answer.tiers:
            _TOKENS.labels(self._model, tier_label(tier)).inc(num_blocks * self._tokens_per_block)

    def _handed_off(self, seconds: float, answer: LoadAnswer) -> None:
        _HANDOFFS.labels(self._model, answer.outcome.value).inc()
        _HANDOFF_SECONDS.labels(self._model).observe(seconds)
        if answer.transport is not None:
            _HANDOFF_BYTES.labels(self._model, answer.transport.value).inc(answer.num_bytes)
            _HANDOFF_TRANSFER.labels(self._model).observe(answer.transfer_seconds)


def _introduce(model: str) -> None:
    """Create the metrics of a model at zero: rate() ignores a counter's first sample."""
    for metric in (_LOADS, _CANCELS, _BYTES, _SECONDS, _HANDOFF_SECONDS, _HANDOFF_TRANSFER):
        metric.labels(model)
    for outcome in LoadOutcome:
        _OUTCOMES.labels(model, outcome.value)
        _HANDOFFS.labels(model, outcome.value)
    for tier in STORE_TIERS:
        _TOKENS.labels(model, tier)
    for transport in KvTransport:
        _HANDOFF_BYTES.labels(model, transport.value)


class DecisionMeter:
    """Increases counters by the totals of the core added since the last call."""

    def __init__(self) -> None:
        for verdict in LoadVerdict:
            _DECISIONS.labels(verdict.value)
        for handoff in HandoffReason:
            _HANDOFF_DECISIONS.labels(handoff.value)
        self._loads = _Totals(_DECISIONS)
        self._handoffs = _Totals(_HANDOFF_DECISIONS)
        self._num_overdue = 0
        self._num_uncopied = 0
        self._num_moves = 0

    def show(
        self, verdicts: Mapping[LoadReason, int], num_overdue: int, num_uncopied: int = 0
    ) -> None:
        """Show decisions about loads."""
        self._loads.show(verdicts)
        _UNCOPIED.inc(num_uncopied - self._num_uncopied)
        self._num_uncopied = num_uncopied
        _OVERDUE.inc(num_overdue - self._num_overdue)
        self._num_overdue = num_overdue

    def show_handoffs(self, verdicts: Mapping[LoadReason, int], num_moves: int) -> None:
        """Show decisions about hand-offs."""
        self._handoffs.show(verdicts)
        _MOVES.inc(num_moves - self._num_moves)
        self._num_moves = num_moves


class _Totals:
    """Totals by verdict, and the part of them that was counted."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._shown: dict[str, int] = {}

    def show(self, verdicts: Mapping[LoadReason, int]) -> None:
        totals = {str(verdict.value): total for verdict, total in verdicts.items()}
        for label, total in totals.items():
            self._counter.labels(label).inc(total - self._shown.get(label, 0))
        self._shown = totals
