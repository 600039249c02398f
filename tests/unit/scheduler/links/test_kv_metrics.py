"""Counters of loads and of what the core decides."""

import enum

from prometheus_client import REGISTRY

from pagewire_scheduler.metrics.kv import DecisionMeter, LoadMeter, StoreMeter
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome, WorkerSource
from pagewire_shared.kv.transport import KvTransport


class LoadReason(enum.Enum):
    GOOD = "good for a test"
    BAD = "bad for a test"


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"pagewire_scheduler_{name}", labels) or 0.0


def test_totals_are_counted_once() -> None:
    before = value("kv_overdue_loads_total")
    meter = DecisionMeter()
    for verdicts, num_overdue in (
        ({LoadReason.GOOD: 2}, 0),
        ({LoadReason.GOOD: 2, LoadReason.BAD: 1}, 1),
        ({LoadReason.GOOD: 5, LoadReason.BAD: 1}, 1),
    ):
        meter.show(verdicts, num_overdue)
    assert value("kv_decisions_total", verdict="good for a test") == 5
    assert value("kv_decisions_total", verdict="bad for a test") == 1
    assert value("kv_overdue_loads_total") - before == 1


def test_decisions_about_hand_offs_are_totals_of_their_own() -> None:
    before = value("moves_total")
    meter = DecisionMeter()
    for total, num_moves in ((1, 0), (1, 2), (4, 3)):
        meter.show_handoffs({LoadReason.BAD: total}, num_moves)
    assert value("handoff_decisions_total", verdict="bad for a test") == 4
    assert value("moves_total") - before == 3


def test_only_loads_that_were_ordered_count() -> None:
    meter = LoadMeter("metered loads", tokens_per_block=4)
    meter.ordered(1.0, LoadOrder(load_id=7, store="store", names=(), blocks=(), timeout_ms=100))
    tiers = (("disk", 2), ("memory", 1), ("tape", 1), ("s3", 2))
    answer = LoadAnswer(7, 6, LoadOutcome.MISSING, 300, 0.5, tiers)
    for now in (1.25, 9.0):
        meter.answered(now, answer)
    model = {"model": "metered loads"}
    assert value("kv_load_outcomes_total", outcome="missing", **model) == 1
    assert value("kv_loaded_tokens_total", tier="disk", **model) == 8
    assert value("kv_loaded_tokens_total", tier="other", **model) == 12
    assert value("kv_load_seconds_sum", **model) == 0.25


def test_a_store_never_has_less_than_nothing() -> None:
    meter = StoreMeter("metered store")
    meter.turned(is_up=True)
    meter.changed(5)
    meter.changed(-7)
    assert value("kvstore_names", store="metered store") == 0
    meter.changed(2)
    assert value("kvstore_names", store="metered store") == 2
    assert value("kvstore_up", store="metered store") == 1


def test_hand_offs_are_counted_apart_from_loads_from_stores() -> None:
    meter = LoadMeter("metered hand-offs", tokens_per_block=4)
    source = WorkerSource("host:1", b"w" * 16)
    for load_id in (1, 2):
        meter.ordered(
            1.0,
            LoadOrder(
                load_id=load_id, store="name", names=(), blocks=(), timeout_ms=100, worker=source
            ),
        )
    meter.cancelled(2)
    came = LoadAnswer(
        1, 2, LoadOutcome.COMPLETE, 300, 0.5, (), KvTransport.SHARED_MEMORY, transfer_seconds=0.125
    )
    for _ in range(2):
        meter.answered(1.5, came)
    meter.answered(2.0, LoadAnswer(2, 0, LoadOutcome.CANCELLED))
    model = {"model": "metered hand-offs"}
    assert value("handoffs_total", outcome="complete", **model) == 1
    assert value("handoffs_total", outcome="cancelled", **model) == 1
    assert value("handoff_bytes_total", transport="shared_memory", **model) == 300
    assert value("handoff_seconds_sum", **model) == 0.5 + 1.0
    assert value("handoff_transfer_seconds_sum", **model) == 0.125
    assert value("handoff_transfer_seconds_count", **model) == 1
    for name in ("loads_total", "load_cancels_total", "loaded_bytes_total", "load_seconds_count"):
        assert value(f"kv_{name}", **model) == 0
    assert value("kv_load_outcomes_total", outcome="complete", **model) == 0


def test_cancels_of_loads_from_stores_are_counted() -> None:
    meter = LoadMeter("metered cancels", tokens_per_block=4)
    meter.ordered(1.0, LoadOrder(load_id=7, store="store", names=(), blocks=(), timeout_ms=100))
    meter.cancelled(7)
    assert value("kv_load_cancels_total", model="metered cancels") == 1
