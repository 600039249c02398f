"""Which of several workers computes a prompt that another generates for."""

from unit.scheduler.handoff_cell import DECODE, PREFILL, PROMPT, D, HandoffCell, P, exchanging

from pagewire_scheduler.core.costs.load_cost import NUM_FAILURES
from pagewire_scheduler.core.state.pairs import source_key
from pagewire_scheduler.core.state.worker import WorkerState

Q = bytes([3]) * 16


def two_sources() -> HandoffCell:
    """P and Q compute prompts."""
    return HandoffCell(exchanging(1, PREFILL), exchanging(2, DECODE), exchanging(3, PREFILL))


def source_of(cell: HandoffCell, number: int) -> WorkerState | None:
    handoff = cell.handoff(number)
    return None if handoff is None else handoff.source


def test_a_worker_that_was_never_measured_is_used_beside_one_that_was() -> None:
    cell = two_sources()
    for worker in (cell.worker(P), cell.worker(D)):
        worker.loads.prefill.note(1000, 1, 1.0)
    for number in range(4):
        cell.submit(number, [number + 1] * len(PROMPT))
    sources = [source_of(cell, number) for number in range(4)]
    assert sources == [cell.worker(P), cell.worker(Q), cell.worker(P), cell.worker(Q)]


def test_a_pair_that_fails_is_no_reason_against_another() -> None:
    for broken, other in ((P, Q), (Q, P)):
        cell = two_sources()
        breaker = cell.worker(D).loads.link(source_key(broken)).breaker
        for _ in range(NUM_FAILURES):
            breaker.begin(cell.now)
            breaker.fail(cell.now)
        for number in range(2):
            cell.submit(number, [number + 1] * len(PROMPT))
            assert source_of(cell, number) is cell.worker(other)
