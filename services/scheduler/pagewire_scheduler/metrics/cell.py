"""Metrics of the cell: load, workers, KV blocks, preemptions and prompt tokens by model."""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge

from pagewire_scheduler.core.cell_load import CellLoad, SequenceCounts, WaitReason, WorkerLoad
from pagewire_scheduler.core.data.model_totals import ModelTotals
from pagewire_scheduler.core.data.settings import CoreCounts
from pagewire_scheduler.core.data.worker_info import ALL_ROLES, Role

_PREFIX = "pagewire_scheduler_"

_RUNNING = Gauge(f"{_PREFIX}running_sequences", "Sequences that run", ["model"])
_WAITING = Gauge(
    f"{_PREFIX}waiting_sequences", "Sequences that wait, by what for", ["model", "reason"]
)
_WORKERS = Gauge(f"{_PREFIX}workers", "Workers attached, by use", ["model", "role"])
_BLOCKS = Gauge(f"{_PREFIX}kv_blocks", "KV blocks of all workers", ["model"])
_USED = Gauge(f"{_PREFIX}kv_used_blocks", "KV blocks in use", ["model"])
_USAGE = Gauge(f"{_PREFIX}kv_usage_ratio", "Share of the KV blocks in use, 0 to 1", ["model"])
_SLOTS = Gauge(f"{_PREFIX}adapter_slots", "Adapter slots of all workers", ["model"])
_ADAPTERS = Gauge(f"{_PREFIX}adapters", "Adapters in them", ["model"])
_EVICTED = Gauge(
    f"{_PREFIX}adapter_evictions",
    "Adapters that gave their slot to others, since their workers attached",
    ["model"],
)
_FRONTENDS = Gauge(f"{_PREFIX}frontends", "Frontends attached")

_PREEMPTIONS = Counter(f"{_PREFIX}preemptions", "Sequences that gave way to others", ["model"])
_LOST = Counter(f"{_PREFIX}lost_workers", "Workers lost while they did not drain", ["model"])
_REQUEUED = Counter(
    f"{_PREFIX}requeued_sequences", "Sequences queued again as their worker was gone", ["model"]
)
_PROMPT = Counter(
    f"{_PREFIX}prompt_tokens", "Prompt tokens computed, again ones included", ["model"]
)
_QUERIED = Counter(
    f"{_PREFIX}prefix_queried_tokens", "Prompt tokens looked up in caches", ["model"]
)
_FOUND = Counter(f"{_PREFIX}prefix_tokens", "Those that were there, by where", ["model", "tier"])
_REJECTED = Counter(f"{_PREFIX}rejected_requests", "Requests refused at the door")

_BOTH = "both"


class CellMeter:
    """Sets gauges to the load, and increases counters by the totals added since the last call."""

    def __init__(self) -> None:
        self._shown = CoreCounts()
        self._models: dict[str, None] = {}

    def show_load(self, load: CellLoad, num_frontends: int) -> None:
        """Show the load of the cell; models without workers and sequences are shown as empty."""
        _FRONTENDS.set(num_frontends)
        sequences = load.of_all_frontends()
        self._models.update(dict.fromkeys((*load.workers, *sequences)))
        for model in self._models:
            _show_sequences(model, sequences.get(model, SequenceCounts()))
            _show_workers(model, load.workers.get(model, WorkerLoad()))

    def show_totals(self, counts: CoreCounts) -> None:
        """Show the totals of the core."""
        shown, self._shown = self._shown, counts.copy()
        _REJECTED.inc(counts.num_rejected - shown.num_rejected)
        for model, totals in counts.models.items():
            _show_totals(model, totals, shown.of(model))


def _show_sequences(model: str, counts: SequenceCounts) -> None:
    _RUNNING.labels(model).set(counts.num_running)
    for reason in WaitReason:
        _WAITING.labels(model, reason.value).set(counts.num_waiting[reason])


def _show_workers(model: str, load: WorkerLoad) -> None:
    by_label = dict.fromkeys((*(role.value for role in Role), _BOTH), 0)
    for roles, count in load.num_by_roles.items():
        by_label[_role(roles)] += count
    for label, count in by_label.items():
        _WORKERS.labels(model, label).set(count)
    _BLOCKS.labels(model).set(load.num_blocks)
    _USED.labels(model).set(load.num_used_blocks)
    _USAGE.labels(model).set(load.usage)
    _SLOTS.labels(model).set(load.num_adapter_slots)
    _ADAPTERS.labels(model).set(load.num_adapters)
    _EVICTED.labels(model).set(load.num_adapter_evictions)


def _role(roles: Iterable[Role]) -> str:
    return _BOTH if set(roles) == ALL_ROLES else next(iter(roles)).value


def _show_totals(model: str, totals: ModelTotals, shown: ModelTotals) -> None:
    for counter, name in (
        (_PREEMPTIONS, "num_preemptions"),
        (_LOST, "num_lost_workers"),
        (_REQUEUED, "num_requeued"),
        (_PROMPT, "num_prompt_tokens"),
        (_QUERIED, "num_queried_tokens"),
    ):
        counter.labels(model).inc(getattr(totals, name) - getattr(shown, name))
    before = shown.found_tokens()
    for tier, count in totals.found_tokens().items():
        _FOUND.labels(model, tier).inc(count - before.get(tier, 0))
