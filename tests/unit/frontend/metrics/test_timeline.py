"""Timelines of choices: added up over re-submits, and as they are shown."""

import json

import pytest

from pagewire_frontend.metrics.timeline import (
    MAX_HEADER_BYTES,
    CellTimeline,
    ChoiceTimeline,
    TimelineKeeper,
    timeline_details,
    timeline_header,
)

CELL = CellTimeline(
    queue_seconds=0.001,
    prefill_seconds=0.0100004,
    transfer_seconds=0.0025,
    transfer_bytes=7,
    transport="grpc",
    queue_waits={"capacity": 0.001},
    paused_seconds=0.25,
    num_preemptions=1,
    num_migrations=2,
    num_recoveries=4,
    is_handed_off=True,
    cached_tiers={"memory": 3},
)
ONE = ChoiceTimeline(0.0005, CELL, 1.5, num_resumes=3)


def test_within_an_epoch_the_newest_counts_and_epochs_add_up() -> None:
    keeper = TimelineKeeper()
    assert keeper.of(0) is None
    keeper.note(0, 0, CellTimeline(queue_seconds=9.0, num_preemptions=9))
    keeper.note(0, 0, CELL)
    later = CellTimeline(
        queue_seconds=1.0,
        prefill_seconds=2.0,
        transfer_seconds=3.0,
        transfer_bytes=4,
        queue_waits={"adapter": 0.75, "capacity": 0.25},
        paused_seconds=0.5,
        num_preemptions=5,
        num_migrations=6,
        num_recoveries=1,
        cached_tiers={"worker": 8},
    )
    for epoch in (2, 3, 3, 1, 0):
        keeper.note(epoch, 0, later)
    total = keeper.of(0)
    assert total is not None
    seconds = (total.queue_seconds, total.prefill_seconds, total.transfer_seconds)
    assert seconds == pytest.approx((2.001, 4.0100004, 6.0025))
    assert total.queue_waits == pytest.approx({"capacity": 0.501, "adapter": 1.5})
    assert total.paused_seconds == 1.25
    assert total.transfer_bytes == 15
    assert (total.num_preemptions, total.num_migrations) == (11, 14)
    assert total.num_recoveries == 6
    assert (total.transport, total.is_handed_off) == ("grpc", True)
    assert total.cached_tiers == {"memory": 3}
    assert keeper.of(1) is None


def test_the_newest_transport_is_named() -> None:
    moved = CellTimeline(transport="shared_memory")
    assert CELL.followed_by(moved).transport == "shared_memory"
    assert CellTimeline().followed_by(moved).is_handed_off is False


def test_durations_are_milliseconds_with_three_digits() -> None:
    assert timeline_details([None, ONE]) == {
        "timeline": [
            None,
            {
                "tokenize_ms": 0.5,
                "queue_ms": 1.0,
                "queue_ms_by_reason": {"capacity": 1.0},
                "paused_ms": 250.0,
                "prefill_ms": 10.0,
                "transfer_ms": 2.5,
                "decode_ms": 1500.0,
                "transfer_bytes": 7,
                "transport": "grpc",
                "num_preemptions": 1,
                "num_migrations": 2,
                "num_recoveries": 7,
                "is_handed_off": True,
                "cached_tokens_by_tier": {"memory": 3},
            },
        ]
    }


def test_nothing_is_shown_where_nobody_said_anything() -> None:
    assert timeline_details([]) == timeline_details([None, None]) == {}
    assert timeline_header([]) is timeline_header([None]) is None


def test_a_header_has_as_many_choices_as_fit() -> None:
    short = timeline_header([ONE, None])
    assert short is not None
    assert json.loads(short) == [ONE.body(), None]
    full = timeline_header([ONE] * 100)
    assert full is not None
    assert len(full) <= MAX_HEADER_BYTES
    shown = json.loads(full)
    assert 8 < len(shown) < 100
    assert shown == [ONE.body()] * len(shown)
