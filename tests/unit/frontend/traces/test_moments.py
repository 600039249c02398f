"""Spans of what workers and stores did lie under the stages, and runs after a loss are linked."""

from dataclasses import replace

from pagewire_frontend.metrics.moments import MAX_MOMENTS, CellMoment, StoreRead
from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.traces.otlp_convert import spans_of

from .records import CELL, CHOICE, RECORD

READS = (StoreRead(address="s:8300", seconds=9.0, num_bytes=64),)
MOMENTS = (
    CellMoment(kind="load", began_at=12.0, seconds=0.5, worker="aa", stores=READS),
    CellMoment(kind="load", began_at=12.0, seconds=0.25, worker="aa", source="bb"),
    CellMoment(kind="prefill", began_at=13.0, seconds=1.0, worker="aa", num_tokens=24),
    CellMoment(kind="pause", began_at=14.0, seconds=0.25),
    CellMoment(kind="decode", began_at=14.9, seconds=0.0, worker="aa"),
    CellMoment(kind="pause", began_at=16.0, seconds=1.0, cause="worker_lost"),
    CellMoment(kind="decode", began_at=17.0, seconds=0.0, worker="cc"),
)


def spans(*moments, **changes):
    choice = replace(CHOICE, cell=replace(CELL, moments=moments))
    return spans_of(replace(RECORD, choices=(choice,), **changes), 0.0)


def shown(found):
    """Return (name, parent's name, begin, end) of the spans below the stages."""
    names = {span.span_id: span.name for span in found}
    return [
        (
            span.name,
            names[span.parent_span_id],
            span.start_time_unix_nano / 1e9,
            span.end_time_unix_nano / 1e9,
        )
        for span in found
        if span.parent_span_id and names[span.parent_span_id] != "llm_request"
    ]


def test_each_lies_under_its_stage():
    assert shown(spans(*MOMENTS)) == [
        ("kv_get", "kv_load", 12.0, 12.5),
        # No longer than the load.
        ("store_get", "kv_get", 12.0, 12.5),
        ("kv_pull", "kv_load", 12.0, 12.25),
        ("prefill_chunk", "prefill", 13.0, 14.0),
        ("paused", "prefill", 14.0, 14.25),
        ("decode_run", "decode", 14.9, 16.0),
        ("paused", "decode", 16.0, 17.0),
        ("decode_run", "decode", 17.0, 18.0),
    ]


def test_they_stay_within_the_request_and_lie_under_it_without_a_stage():
    early = CellMoment(kind="prefill", began_at=1.0, seconds=100.0, worker="aa")
    found = spans(early, tokenize_seconds=0.0)
    (chunk,) = [one for one in found if one.name == "prefill_chunk"]
    assert (chunk.start_time_unix_nano, chunk.end_time_unix_nano) == (10 * 10**9, 20 * 10**9)
    late = replace(MOMENTS[0], began_at=12.0)
    choice = replace(CHOICE, cell=CellTimeline(moments=(late,)))
    found = spans_of(replace(RECORD, choices=(choice,)), 0.0)
    (load,) = [one for one in found if one.name == "kv_get"]
    assert load.parent_span_id == found[0].span_id


def test_the_first_span_of_a_later_run_links_to_the_last_before():
    first = (MOMENTS[2], MOMENTS[4])
    second = tuple(replace(one, began_at=one.began_at + 2.0, epoch=1) for one in first)
    below = [one for one in spans(*first, *second) if one.name in ("prefill_chunk", "decode_run")]
    assert [len(one.links) for one in below] == [0, 0, 1, 0]
    assert below[2].links[0].span_id == below[1].span_id
    assert below[2].links[0].trace_id == below[1].trace_id


def test_moments_over_all_runs_are_bounded():
    cell = CellTimeline(moments=MOMENTS * 30)
    assert len(cell.followed_by(cell).moments) == MAX_MOMENTS
