"""The first line of an explanation names what took the time; the history is bounded."""

from dataclasses import replace

import pytest

from pagewire_frontend.traces.explanation import explain
from pagewire_frontend.traces.history import MAX_CHOICES, MAX_REQUESTS, RequestHistory
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
    "KV blocks": late(9, cell=replace(CELL, transfer_seconds=9.0)),
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


def test_ends_that_are_not_good_are_in_the_summary():
    lost = replace(RECORD, error="no worker is left", is_finished=False)
    assert explain(lost).summary.startswith("It failed after 10.000 s")
    assert "It was broken off: no worker is left." in explain(lost).notes
    left = replace(RECORD, is_finished=False)
    assert explain(left).summary.startswith("Its client left after 10.000 s")


def test_notes_say_what_happened_on_the_way():
    record = with_cell(num_recoveries=2, num_preemptions=1, num_migrations=1, is_handed_off=True)
    notes = " ".join(explain(replace(record, num_resubmits=1)).notes)
    for words in (
        "scheduler was lost once",
        "lost its worker 2 times",
        "gave way to others once",
        "was moved to another worker once",
        "prompt computed by another worker",
        "64 bytes of KV blocks by shared_memory",
        "found 16 of 40 prompt tokens: 16 in worker",
        "7 tokens, 500.0 ms apart",
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
