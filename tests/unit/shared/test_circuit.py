"""The circuit breaker against a table of what may follow what, and by example."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_shared.process.circuit import MOVES, CircuitBreaker, CircuitState

CLOSED, OPEN, HALF_OPEN = CircuitState.CLOSED, CircuitState.OPEN, CircuitState.HALF_OPEN


def breaker() -> CircuitBreaker:
    return CircuitBreaker(max_failures=3, first_seconds=1.0, max_seconds=5.0)


def opened(now: float = 0.0) -> CircuitBreaker:
    circuit = breaker()
    for _ in range(3):
        circuit.fail(now)
    return circuit


def test_failures_in_a_row_open_the_circuit() -> None:
    circuit = breaker()
    for _ in range(5):
        circuit.fail(0.0)
        circuit.fail(0.0)
        assert circuit.state is CLOSED
        assert circuit.allows_attempt(0.0)
        circuit.succeed()
    for _ in range(3):
        assert circuit.is_closed
        circuit.fail(0.0)
    assert circuit.state is OPEN
    assert not circuit.is_closed


def test_it_stays_open_longer_with_every_failed_attempt_and_starts_again_after_a_success() -> None:
    circuit, now = opened(10.0), 10.0
    for seconds in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert not circuit.allows_attempt(now + seconds - 0.01)
        now += seconds
        assert circuit.allows_attempt(now)
        circuit.begin(now)
        assert circuit.state is HALF_OPEN
        # One attempt at a time.
        assert not circuit.allows_attempt(now)
        circuit.fail(now)
        assert circuit.state is OPEN
    circuit.begin(now + 5.0)
    circuit.succeed()
    assert circuit.state is CLOSED
    for _ in range(3):
        assert circuit.allows_attempt(now)
        circuit.fail(now)
    assert not circuit.allows_attempt(now + 0.99)
    assert circuit.allows_attempt(now + 1.0)


def test_calls_from_before_it_opened_report_late() -> None:
    circuit = opened()
    for _ in range(20):
        circuit.fail(0.9)
    assert circuit.allows_attempt(1.0)
    circuit.succeed()
    assert circuit.state is CLOSED


def test_an_attempt_that_never_reports_does_not_keep_it_half_open() -> None:
    circuit = opened()
    circuit.begin(1.0)
    assert not circuit.allows_attempt(5.9)
    assert circuit.allows_attempt(6.0)
    circuit.begin(6.0)
    assert not circuit.allows_attempt(6.0)


def test_an_attempt_without_a_result_allows_another() -> None:
    circuit = opened()
    circuit.begin(1.0)
    circuit.forgo()
    assert circuit.allows_attempt(1.0)
    circuit.begin(1.0)
    circuit.fail(1.0)
    assert not circuit.allows_attempt(2.9), "what showed nothing is no success"


def test_begin_is_refused_while_open() -> None:
    with pytest.raises(AssertionError):
        opened().begin(0.5)


_STEPS = st.sampled_from(["begin", "fail", "succeed", "forgo"])


@given(st.lists(st.tuples(_STEPS, st.floats(0.0, 4.0))))
def test_any_order_of_calls_makes_legal_moves(steps: list[tuple[str, float]]) -> None:
    circuit, now, failures_since_success = breaker(), 0.0, 0
    for step, seconds in steps:
        now += seconds
        before = circuit.state
        if step == "fail":
            failures_since_success += 1
            circuit.fail(now)
        elif step == "succeed":
            failures_since_success = 0
            circuit.succeed()
        elif step == "forgo":
            circuit.forgo()
        elif circuit.allows_attempt(now):
            circuit.begin(now)
        assert circuit.state is before or circuit.state in MOVES[before]
        assert circuit.is_closed == (failures_since_success < 3)
        # However it went, it is tried again in the end.
        assert circuit.allows_attempt(now + 5.0)
