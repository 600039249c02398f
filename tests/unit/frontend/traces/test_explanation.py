"""The first line of an explanation names what took the time; the history is bounded."""

from dataclasses import replace
from pathlib import Path

import pytest

from pagewire_frontend.traces.explanation import explain
from pagewire_frontend.traces.history import MAX_CHOICES, MAX_REQUESTS, RequestHistory
from pagewire_frontend.traces.reasons import INTERRUPTIONS, PHRASES, RESUBMIT
from pagewire_frontend.traces.reasons import WAITS as QUEUE_REASONS
from pagewire_shared.errors import InvalidRequestError

from .records import CELL, CHOICE, RECORD


def with_cell(**facts):
    return replace(RECORD, choices=(replace(CHOICE, cell=replace(CELL, **facts)),))


def late(seconds, *, cell=CELL, **times):
    """Return a request whose later part is moved by `seconds`."""
    choice = replace(CHOICE, first_at=15.0 + seconds, last_at=18.0 + seconds, cell=cell)
    times |= {"first_at": 15.0 + seconds, "ended_at": 20.0 + seconds}
    return replace(RECORD, choices=(choice,), **times)


SLOW = {
    "grammar": late(9, tokenize_began_at=19.25, submitted_at=20.0),
    "tokenizing": late(9, tokenize_seconds=9.5, submitted_at=20.0),
    "a worker that serves its model": late(9, submitted_at=20.0),
    "at the scheduler": late(9, cell=replace(CELL, queue_seconds=9.0)),
    "KV blocks of a store or another": late(9, cell=replace(CELL, transfer_seconds=9.0)),
    "KV blocks that it found in disk, redis": late(
        9, cell=replace(CELL, transfer_seconds=9.0, cached_tiers={"disk": 1, "redis": 2, "x": 0})
    ),
    "KV blocks of the worker that computed": late(
        9, cell=replace(CELL, transfer_seconds=9.0, is_handed_off=True)
    ),
    "getting to a scheduler again": late(9, num_resubmits=1),
    "computing its prompt": late(9, cell=replace(CELL, prefill_seconds=9.0)),
    "its first token": late(9),
    "generating": replace(RECORD, ended_at=30.0, choices=(replace(CHOICE, last_at=29.0),)),
    "the client": replace(RECORD, ended_at=40.0),
}


@pytest.mark.parametrize("words", SLOW)
def test_the_summary_names_the_largest_part(words):
    explanation = explain(SLOW[words])
    assert words in explanation.summary
    assert explanation.summary.startswith("It took ")


WAITS = {
    "a slot or blocks": "capacity",
    "a worker that serves": "worker",
    "a worker to wake": "sleep",
    "its turn among tenants": "tenants",
    "its turn in the steps": "step",
    "its adapter to be in a slot": "adapter",
    "its grammar to be compiled": "grammar",
    "trials of others": "trial",
}


@pytest.mark.parametrize("words", WAITS)
def test_the_largest_reason_of_waiting_is_named(words):
    others = dict.fromkeys(WAITS.values(), 0.5)
    waits = others | {WAITS[words]: 5.0}
    record = late(9, cell=replace(CELL, queue_seconds=9.0, queue_waits=waits))
    assert explain(record).summary.startswith("It took 19.000 s, of which 5.000 s (26 %) went into")
    assert f"waiting for {words}" in explain(record).summary
    (queue,) = [one for one in explain(record).stages if one.name == "queue"]
    assert queue.attributes[f"pagewire.queue_seconds.{WAITS[words]}"] == 5.0


def test_a_pause_is_named_where_it_is_most_of_the_largest_part():
    choice = replace(CHOICE, last_at=29.0, cell=replace(CELL, paused_seconds=8.0))
    record = replace(RECORD, ended_at=30.0, choices=(choice,))
    assert "8.000 s (40 %) went into waiting to go on" in explain(record).summary
    short = replace(choice, cell=replace(CELL, paused_seconds=6.0))
    assert "generating" in explain(replace(record, choices=(short,))).summary
    slow = late(9, cell=replace(CELL, prefill_seconds=9.0, paused_seconds=8.0))
    assert "waiting to go on" in explain(slow).summary


CAUSES = {
    "after its worker was lost": ({"num_recoveries": 1}, {}),
    "after it gave way to others": ({"num_preemptions": 1}, {}),
    "after it was moved": ({"num_migrations": 1}, {}),
    "after its worker was lost, or its scheduler was lost": (
        {"num_recoveries": 1},
        {"num_resubmits": 1},
    ),
    "while others had their turn": ({}, {}),
}


@pytest.mark.parametrize("words", CAUSES)
def test_a_pause_has_its_cause(words):
    counts, times = CAUSES[words]
    cell = replace(CELL, paused_seconds=8.0, **counts)
    choice = replace(CHOICE, last_at=29.0, cell=cell)
    summary = explain(replace(RECORD, ended_at=30.0, choices=(choice,), **times)).summary
    assert "8.000 s (40 %) went into waiting to go on after" in summary
    assert words in summary


GAPS = {
    "a gap between its tokens after its worker was lost": ({"num_recoveries": 1}, {}),
    "getting to a scheduler again": ({}, {"num_resubmits": 1}),
    "one gap between its tokens, in a step that took so long": ({}, {}),
}


@pytest.mark.parametrize("words", GAPS)
def test_a_gap_is_named_where_it_is_most_of_the_tokens_time(words):
    counts, times = GAPS[words]
    choice = replace(CHOICE, last_at=29.0, longest_gap=7.5, cell=replace(CELL, **counts))
    record = replace(RECORD, ended_at=30.0, choices=(choice,), **times)
    assert explain(record).summary.startswith("It took 20.000 s, of which 7.500 s (38 %) went into")
    assert words in explain(record).summary
    short = replace(record, choices=(replace(choice, longest_gap=6.0),))
    assert "generating" in explain(short).summary


CODES = {
    "queue.adapter": (late(9, cell=replace(CELL, queue_seconds=9.0, queue_waits={"adapter": 9.0}))),
    "queue": SLOW["at the scheduler"],
    "kv_load": SLOW["KV blocks of a store or another"],
    "kv_load.store": SLOW["KV blocks that it found in disk, redis"],
    "kv_load.handoff": SLOW["KV blocks of the worker that computed"],
    "resubmit": SLOW["getting to a scheduler again"],
    "first_token": SLOW["its first token"],
    "deliver": SLOW["the client"],
    "paused.preempted": late(
        9, cell=replace(CELL, prefill_seconds=9.0, paused_seconds=8.0, num_preemptions=1)
    ),
    "gap": replace(
        RECORD, ended_at=30.0, choices=(replace(CHOICE, last_at=29.0, longest_gap=7.5),)
    ),
    "gap.worker_lost": replace(
        RECORD,
        ended_at=30.0,
        choices=(
            replace(CHOICE, last_at=29.0, longest_gap=7.5, cell=replace(CELL, num_recoveries=1)),
        ),
    ),
}


@pytest.mark.parametrize("code", CODES)
def test_reasons_have_codes_and_add_up_to_the_stages(code):
    explanation = explain(CODES[code])
    assert explanation.cause.code == code
    assert explanation.cause in explanation.reasons
    stages = sum(stage.ended_at - stage.began_at for stage in explanation.stages)
    assert sum(reason.seconds for reason in explanation.reasons) == pytest.approx(stages)
    assert explanation.reasons[0].seconds == max(one.seconds for one in explanation.reasons)


def test_a_pause_counts_once():
    choice = replace(CHOICE, cell=replace(CELL, paused_seconds=9.0, prefill_seconds=2.0))
    codes = [one.code for one in explain(replace(RECORD, choices=(choice,))).reasons]
    assert codes.count("paused") == 1


def test_every_code_is_documented():
    page = (Path(__file__).parents[4] / "docs/observability/explain.md").read_text()
    for word in (*PHRASES, *QUEUE_REASONS, *INTERRUPTIONS, RESUBMIT, *CODES):
        assert f"`{word}`" in page or word.startswith(("queue.", "paused.", "gap.")), word


def test_ends_that_are_not_good_are_in_the_summary():
    lost = replace(RECORD, error="no worker is left", is_finished=False)
    assert explain(lost).summary.startswith("It failed after 10.000 s")
    assert "It was broken off: no worker is left." in explain(lost).notes
    left = replace(RECORD, is_finished=False)
    assert explain(left).summary.startswith("Its client left after 10.000 s")


def test_notes_say_what_happened_on_the_way():
    waits = {"step": 0.25, "adapter": 0.5}
    counts = {"num_recoveries": 2, "num_preemptions": 1, "num_migrations": 1}
    record = with_cell(queue_waits=waits, paused_seconds=0.125, is_handed_off=True, **counts)
    notes = " ".join(explain(replace(record, num_resubmits=1)).notes)
    for words in (
        "scheduler was lost once",
        "waited in the queue by reason: 0.500 s adapter, 0.250 s step",
        "was paused for 0.125 s",
        "lost its worker 2 times",
        "gave way to others once",
        "was moved to another worker once",
        "prompt computed by another worker",
        "64 bytes of KV blocks by shared_memory",
        "found 16 of 40 prompt tokens: 16 in worker",
        "7 tokens, 500.0 ms apart, 500.0 ms at most",
    ):
        assert words in notes


def test_notes_are_bounded():
    assert len(explain(replace(RECORD, choices=(CHOICE,) * 128)).notes) < 40


def test_requests_are_found_by_label_and_id():
    history = RequestHistory()
    slow = replace(RECORD, request_id=b"\xab" * 16, ended_at=50.0)
    for record in (replace(RECORD, label="mine"), slow, RECORD):
        history.put(record)
    assert history.find("mine").label == "mine"
    assert history.find("ABABABAB") is history.find("") is slow
    assert history.find("00010203") is RECORD, "the newest of that id"
    for name in ("abab", "cdcdcdcd"):
        with pytest.raises(InvalidRequestError) as caught:
            history.find(name)
        assert caught.value.field == "request"


def test_the_history_is_bounded():
    history = RequestHistory()
    with pytest.raises(InvalidRequestError):
        history.find("")
    for number in range(MAX_REQUESTS + 5):
        history.put(replace(RECORD, label=f"request-{number}"))
    with pytest.raises(InvalidRequestError):
        history.find("request-4")
    assert history.find("request-5")
    for number in range(MAX_CHOICES // 128 + 1):
        history.put(replace(RECORD, label=f"wide-{number}", choices=(CHOICE,) * 128))
    with pytest.raises(InvalidRequestError):
        history.find("wide-0x")
    with pytest.raises(InvalidRequestError):
        history.find(f"request-{MAX_REQUESTS + 4}")
