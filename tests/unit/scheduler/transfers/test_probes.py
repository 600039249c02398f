"""Probes of pairs: real blocks that nobody asked for, kept until they are compared."""

import pytest
from unit.scheduler.handoff_cell import DECODE, PREFILL, D, HandoffCell, P, exchanging

from pagewire_scheduler.core.audit import check_integrity
from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.kv.transport import KvTransport


def test_a_probe_brings_blocks_that_both_keep_until_it_is_ended() -> None:
    cell = HandoffCell()
    number = cell.core.probes.begin(P, D, 5.0)
    assert cell.core.probes.take_ended() == []
    cell.step(P)
    order = cell.order()
    cell.tick(0.5)
    cell.finish(order)
    ((ended, outcome),) = cell.core.probes.take_ended()
    assert ended == number
    assert cell.core.probes.take_ended() == [], "each once"
    assert outcome.names == order.names
    assert (outcome.num_bytes, outcome.transport) == (4000, KvTransport.GRPC)
    assert outcome.error is None
    assert outcome.seconds == 0.5
    for worker in cell.core.workers.values():
        assert sum(worker.pool.ref_counts) == 4
    cell.core.probes.end(number)
    cell.run_out(P)
    assert cell.is_clean
    assert cell.plan(D) is None, "nothing is generated"


def test_two_probes_share_no_block() -> None:
    cell = HandoffCell()
    names = []
    for _ in range(2):
        number = cell.core.probes.begin(P, D, 5.0)
        cell.step(P)
        order = cell.order()
        cell.finish(order)
        names += order.names
        cell.core.probes.end(number)
    assert len(set(names)) == 8


@pytest.mark.parametrize("num_blocks", [0, 3])
def test_a_probe_says_what_did_not_come(num_blocks: int) -> None:
    cell = HandoffCell()
    number = cell.core.probes.begin(P, D, 5.0)
    cell.step(P)
    cell.finish(cell.order(), num_blocks, LoadOutcome.FAILED)
    ((_, outcome),) = cell.core.probes.take_ended()
    assert outcome.error == f"{4 - num_blocks} of 4 blocks did not come"
    assert len(outcome.names) == num_blocks
    cell.core.probes.end(number)
    cell.run_out(P)
    assert cell.is_clean


@pytest.mark.parametrize("lost", [P, D])
def test_a_probe_ends_with_its_workers(lost: bytes) -> None:
    cell = HandoffCell()
    number = cell.core.probes.begin(P, D, 5.0)
    cell.plan(P)
    (order,) = cell.orders()
    cell.detach(lost)
    if lost == P:
        cell.finish(order, 1, LoadOutcome.CANCELLED)
    ((_, outcome),) = cell.core.probes.take_ended()
    assert outcome.error is not None
    cell.core.probes.end(number)
    check_integrity(cell.core)


def test_a_probe_may_be_ended_at_any_time() -> None:
    cell = HandoffCell()
    cell.core.probes.end(cell.core.probes.begin(P, D, 5.0))
    assert cell.plan(P) is None
    number = cell.core.probes.begin(P, D, 5.0)
    plan = cell.plan(P)
    cell.core.probes.end(number)
    cell.core.probes.end(number)
    assert plan is not None
    cell.answer(P, plan)
    (order,) = cell.orders()
    assert cell.core.kv_caches.take_cancelled_loads(D) == [order.load_id]
    cell.finish(order, 0, LoadOutcome.CANCELLED)
    cell.run_out(P)
    assert cell.is_clean


def test_a_probe_that_takes_too_long_ends_with_its_time() -> None:
    cell = HandoffCell()
    cell.core.probes.begin(P, D, 1.0)
    cell.tick(1.0)
    ((_, outcome),) = cell.core.probes.take_ended()
    assert outcome.error == "4 of 4 blocks did not come"


def test_pairs_that_exchange_nothing_are_refused() -> None:
    cell = HandoffCell(exchanging(1, PREFILL), exchanging(2, DECODE, dtype="bfloat16"))
    with pytest.raises(InvalidRequestError, match="types differ"):
        cell.core.probes.begin(P, D, 1.0)
    with pytest.raises(InvalidRequestError, match="one worker"):
        cell.core.probes.begin(P, P, 1.0)
    with pytest.raises(UnavailableError):
        cell.core.probes.begin(P, b"?" * 16, 1.0)
