"""Stages of a request, parents of traces, and which requests are traced."""

from dataclasses import replace

import pytest

from pagewire_frontend.traces.parent import TraceParent, parent_in, parse_parent
from pagewire_frontend.traces.sampling import TracePolicy
from pagewire_frontend.traces.stages import MAX_CHOICES, stages_of

from .records import CHOICE, RECORD

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def shown(record):
    return [(stage.name, stage.began_at, stage.ended_at) for stage in stages_of(record)]


def test_stages_follow_each_other_from_the_arrival_to_the_end():
    assert shown(RECORD) == [
        ("grammar", 10.0, 10.25),
        ("tokenize", 10.25, 10.75),
        ("admit", 10.75, 11.0),
        ("queue", 11.0, 12.0),
        ("kv_load", 12.0, 12.5),
        ("prefill", 12.5, 14.5),
        ("first_token", 14.5, 15.0),
        ("decode", 15.0, 18.0),
        ("deliver", 18.0, 20.0),
    ]
    by_name = {stage.name: stage.attributes for stage in stages_of(RECORD)}
    assert by_name["prefill"]["pagewire.prefill.tokens"] == 24
    assert by_name["kv_load"]["pagewire.cached_tokens.worker"] == 16
    assert by_name["decode"]["pagewire.decode.tokens"] == 7


def test_a_request_that_no_scheduler_took_waits_to_its_end():
    choice = replace(CHOICE, cell=None, first_at=None, last_at=None)
    record = replace(RECORD, first_at=None, choices=(choice,), error="no worker")
    assert shown(record)[-1] == ("queue", 11.0, 20.0)


@pytest.mark.parametrize("first_at", [None, 13.0])
def test_reports_that_add_up_to_more_end_with_the_first_token_or_the_request(first_at):
    choice = replace(CHOICE, first_at=first_at, last_at=first_at)
    record = replace(RECORD, ended_at=13.0, choices=(choice,))
    assert shown(record)[3:] == [
        ("queue", 11.0, 12.0),
        ("kv_load", 12.0, 12.5),
        ("prefill", 12.5, 13.0),
    ]


def test_stages_are_bounded():
    record = replace(RECORD, choices=(CHOICE,) * 100)
    assert len(shown(record)) == 3 + 6 * MAX_CHOICES


def test_parents():
    good = TraceParent(int(TRACE, 16), int(SPAN, 16), is_sampled=True, state="a=1")
    headers = [(b"tracestate", b"a=1"), (b"traceparent", f"00-{TRACE}-{SPAN}-01".encode())]
    assert parent_in(headers) == good
    assert parent_in((("traceparent", f"00-{TRACE}-{SPAN}-00"),)) == replace(
        good, is_sampled=False, state=""
    )
    # A later version may have more fields.
    assert parse_parent(f"01-{TRACE}-{SPAN}-01-more") is not None
    assert parent_in(None) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-zz",
    ],
)
def test_what_is_not_a_parent_is_no_error(text):
    assert parse_parent(text) is None


def test_failed_and_slow_requests_are_always_traced():
    never = TracePolicy(ratio=0.0, slow_seconds=10.0)
    assert not TracePolicy(ratio=0.0).takes(RECORD)
    assert never.takes(RECORD)
    assert not never.takes(replace(RECORD, ended_at=19.9))
    assert never.takes(replace(RECORD, ended_at=11.0, error="lost"))


def test_the_client_decides_for_its_own_traces():
    parent = TraceParent(1, 2, is_sampled=True)
    assert TracePolicy(ratio=0.0).takes(replace(RECORD, parent=parent))
    assert not TracePolicy().takes(replace(RECORD, parent=replace(parent, is_sampled=False)))


def test_the_ratio_is_that_of_random_ids():
    policy = TracePolicy(ratio=0.25)
    ids = [number.to_bytes(1, "big") + bytes(15) for number in range(256)]
    assert sum(policy.takes(replace(RECORD, request_id=one)) for one in ids) == 64
