"""Loads and totals of the core as metrics of the process."""

from typing import Any

from prometheus_client import REGISTRY

from pagewire_scheduler.core.cell_load import CellLoad, SequenceCounts, WaitReason, WorkerLoad
from pagewire_scheduler.core.data.settings import CoreCounts
from pagewire_scheduler.core.data.worker_info import ALL_ROLES, Role
from pagewire_scheduler.metrics.cell import CellMeter


def value(name: str, **labels: Any) -> float | None:
    return REGISTRY.get_sample_value(f"pagewire_scheduler_{name}", labels)


def load(model: str, num_running: int) -> CellLoad:
    sequences = SequenceCounts(num_running)
    sequences.num_waiting[WaitReason.KV] = 2
    roles = {ALL_ROLES: 1, frozenset({Role.PREFILL}): 3}
    workers = WorkerLoad(roles, num_blocks=10, num_used_blocks=4, block_size=16)
    return CellLoad({b"a": {model: sequences}, b"b": {model: sequences}}, {model: workers})


def test_a_load_is_shown_as_the_sum_over_frontends() -> None:
    CellMeter().show_load(load("shown", 3), 2)
    assert value("running_sequences", model="shown") == 6
    assert value("waiting_sequences", model="shown", reason="kv") == 4
    assert value("waiting_sequences", model="shown", reason="capacity") == 0
    assert value("workers", model="shown", role="both") == 1
    assert value("workers", model="shown", role="prefill") == 3
    assert value("workers", model="shown", role="decode") == 0
    assert value("kv_usage_ratio", model="shown") == 0.4
    assert value("frontends") == 2


def test_a_model_that_is_gone_is_empty() -> None:
    meter = CellMeter()
    meter.show_load(load("gone", 3), 1)
    meter.show_load(CellLoad({}, {}), 0)
    assert value("running_sequences", model="gone") == 0
    assert value("workers", model="gone", role="both") == 0
    assert value("kv_blocks", model="gone") == 0
    assert value("kv_usage_ratio", model="gone") == 0


def test_totals_are_counted_once() -> None:
    counts, meter = CoreCounts(), CellMeter()
    totals = counts.of("counted")
    meter.show_totals(counts)
    assert value("prefix_tokens_total", model="counted", tier="disk") == 0, "there from the start"
    totals.note_prefix(20, [("worker", 8), ("disk", 4), ("floppy", 2)], 3)
    totals.num_preemptions = 5
    for _ in range(2):
        meter.show_totals(counts)
    totals.note_prefix(10, [("disk", 1)], 0)
    meter.show_totals(counts)
    found = {
        tier: value("prefix_tokens_total", model="counted", tier=tier)
        for tier in ("device", "disk", "worker", "other", "memory")
    }
    assert found == {"device": 8, "disk": 5, "worker": 3, "other": 2, "memory": 0}
    assert value("prefix_queried_tokens_total", model="counted") == 30
    assert value("preemptions_total", model="counted") == 5
