"""A call with a made-up machine and clock: the budget, lost devices, what is tried again."""

import json

from hour.call import Budget, counted_tests, outcome_of, run_call
from hour.items import gpu_tests
from hour.process import Ran
from hour.state import State

from .conftest import ENVIRONMENT, FakeEdge, item

MINUTES = Budget(call_seconds=60, all_seconds=150)
LONG = Budget(call_seconds=600, all_seconds=9000)


def call(items, state, edge, budget=MINUTES):
    return run_call(items, state, budget, edge, now=edge.now)


def test_a_call_ends_when_nothing_fits_and_the_next_one_goes_on(state):
    items = [item(name, seconds=25, limit=40) for name in "abcde"]
    edge = FakeEdge(seconds=dict.fromkeys("abcde", 25.0))
    assert "none of the 3 items left fits in 10 s" in call(items, state, edge)
    assert edge.ran == ["a", "b"]
    call(items, State(state.path), edge)
    assert edge.ran == ["a", "b", "c", "d"]
    assert state.path.read_text().count('"call"') == 2


def test_all_calls_together_have_a_budget(state):
    items = [item(name, seconds=25, limit=40) for name in "abcdefghij"]
    edge = FakeEdge(seconds=dict.fromkeys("abcdefghij", 25.0))
    for _ in range(2):
        call(items, state, edge)
    # 50 of 150 seconds are left of the third call's 60.
    assert "fits in 0 s" in call(items, state, edge)
    assert call(items, state, edge) == "all 2 minutes are used"
    assert edge.ran == list("abcdef")


def test_a_short_item_takes_the_time_that_a_long_one_would_pass(state):
    items = [item("a", seconds=40, limit=50), item("b", seconds=40, limit=50), item("c")]
    edge = FakeEdge(seconds={"a": 40.0})
    call(items, state, edge)
    assert edge.ran == ["a", "c"]


def test_what_the_end_of_a_call_cuts_off_is_run_again_but_what_hangs_is_not(state):
    items = [item("a", seconds=50, limit=100)]
    edge = FakeEdge(seconds={"a": 1000.0})
    call(items, state, edge)
    assert state.records[-2]["outcome"] == "cut off"
    edge.ran.clear()
    call(items, state, edge, Budget(call_seconds=200, all_seconds=1000))
    assert edge.ran == ["probe", "a", "probe"]
    assert state.records[-2]["outcome"] == "hung"
    edge.ran.clear()
    call(items, state, edge, Budget(call_seconds=200, all_seconds=1000))
    assert edge.ran == []


def test_an_item_that_fails_costs_a_probe_and_what_needs_it(state):
    items = [item("a"), item("b", needs=("a",)), item("c")]
    edge = FakeEdge(codes={"a": -11}, probes=[False, True])
    call(items, state, edge, LONG)
    assert edge.ran == ["a", "probe", "probe", "c"]
    assert state.facts.outcome("a") == "crashed"


def test_two_failed_probes_end_the_call_and_the_next_one_begins_with_one(state):
    items = [item("a"), item("b")]
    edge = FakeEdge(codes={"a": 1}, probes=[False] * 4)
    assert call(items, state, edge, LONG) == "the device does not answer after a"
    assert edge.ran == ["a", "probe", "probe"]
    edge.ran.clear()
    assert call(items, state, edge) == "the device is still lost"
    assert edge.ran == ["probe", "probe"]
    edge.ran.clear()
    call(items, state, edge)
    assert edge.ran == ["probe", "b"]


def test_no_probe_begins_that_the_call_may_not_have_time_for(state):
    edge = FakeEdge(codes={"a": 1})
    assert "no time is left" in call([item("a"), item("b")], state, edge)
    assert edge.ran == ["a"]
    call([item("a"), item("b")], state, edge)
    assert edge.ran == ["a", "probe", "b"]


def test_the_environment_is_asked_in_every_call(state):
    items = [item("environment", is_in_every_call=True), item("a"), item("b", seconds=45, limit=50)]
    edge = FakeEdge(results={"environment": ENVIRONMENT})
    call(items, state, edge)
    edge.results["environment"] = {**ENVIRONMENT, "device": None}
    call(items, state, edge)
    assert edge.ran == ["environment", "a", "environment"]


def test_processes_of_a_harness_that_was_killed_are_ended(state):
    state.append({"event": "call", "elapsed": 0.0})
    state.append({"event": "start", "item": "a", "token": "old", "elapsed": 3.0})
    with state.path.open("a") as file:
        file.write('{"event": "en')
    edge = FakeEdge()
    resumed = State(state.path)
    call([item("a")], resumed, edge)
    assert edge.killed == ["old"]
    assert edge.ran == ["a"]
    lines = state.path.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines if line != '{"event": "en'][-1] == "stop"
    assert State(state.path).facts.used_seconds == 13.0


PRINTED = """
tests/gpu/test_cuda_x.py::test_one[a-b] PASSED  [ 33%]
tests/gpu/test_cuda_x.py::test_two FAILED       [ 66%]
FAILED tests/gpu/test_cuda_x.py::test_two - AssertionError: no
ERROR tests/gpu/test_cuda_x.py::test_three
=========== 1 failed, 4 passed, 1 skipped, 1 error in 3.21s ===========
"""


def test_counts_and_names_are_read_from_what_pytest_prints():
    found = counted_tests(PRINTED)
    assert found["tests"] == {"failed": 1, "passed": 4, "skipped": 1, "error": 1}
    assert [name.partition("::")[2] for name in found["failed_tests"]] == ["test_two", "test_three"]
    assert found["last_test"].endswith("test_two")
    assert counted_tests("Fatal Python error")["tests"] == {}


def test_tests_that_were_all_skipped_did_not_pass():
    tests = item("a", *gpu_tests("fp8"))
    for printed, outcome in (
        ("== 3 skipped in 1s ==\n", "failed"),
        ("== 1 passed in 1s ==\n", "passed"),
    ):
        assert outcome_of(tests, Ran(0, False, 1.0, printed), is_cut=False) == outcome
