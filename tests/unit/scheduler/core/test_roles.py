"""Roles, which workers take what, and what happens to sequences when a role is lost or a worker
drains."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import finished
from unit.scheduler.handoff_cell import (
    DECODE,
    PREFILL,
    PROMPT,
    D,
    E,
    HandoffCell,
    P,
    exchanging,
)
from unit.scheduler.hellos import MODEL

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.worker_info import ALL_ROLES
from pagewire_shared.kv.load import LoadOutcome
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams

LONG = SamplingParams(max_tokens=30)


def two_decoders(**changes: object) -> HandoffCell:
    return HandoffCell(
        exchanging(1, PREFILL, **changes),
        exchanging(2, DECODE, **changes),
        exchanging(3, DECODE, **changes),
    )


def worker_of(cell: HandoffCell, number: int) -> bytes:
    worker = cell.sequence(number).placement.worker
    assert worker is not None
    return worker.info.worker_id


def test_vectors_are_made_by_workers_for_prompts() -> None:
    model = replace(MODEL, embedding_size=2)
    cell = HandoffCell(exchanging(1, PREFILL, model=model), exchanging(2, DECODE, model=model))
    cell.submit(1, pooling=PoolingParams(), sampling=SamplingParams(max_tokens=1))
    assert worker_of(cell, 1) == P


@pytest.mark.parametrize("roles", [PREFILL, DECODE])
def test_without_workers_for_a_role_the_others_do_it(roles: frozenset) -> None:
    cell = HandoffCell(exchanging(1, roles), exchanging(2, roles), handoff="auto")
    cell.submit(1)
    worker = worker_of(cell, 1)
    assert cell.sequence(1).state is State.WAITING
    assert len(finished(cell.run_out(worker))) == 1
    assert cell.core.topology().warnings


def test_an_idle_worker_for_prompts_takes_no_sequence_of_others() -> None:
    cell = HandoffCell(exchanging(1, PREFILL), exchanging(2, DECODE, max_num_seqs=1))
    for number in (1, 2, 3):
        cell.submit(number, [number] * 3, sampling=LONG)
    cell.step(D)
    assert cell.plan(P) is None
    assert {worker_of(cell, number) for number in (1, 2, 3)} == {D}


def test_who_waits_for_a_role_that_is_lost_moves() -> None:
    cell = two_decoders(max_num_seqs=1)
    for number in range(1, 5):
        cell.submit(number, [number] * 3, sampling=LONG)
    cell.plan(D)
    cell.plan(E)
    assert len(cell.worker(D).waiting) == 1
    cell.core.set_roles(D, PREFILL)
    assert len(cell.worker(D).waiting) == 0
    assert len(cell.worker(D).running) == 1, "what runs ends where it is"
    assert len(cell.worker(E).waiting) == 2
    cell.core.set_roles(E, PREFILL)
    waiting = [len(worker.waiting) for worker in cell.core.workers.values()]
    assert sum(waiting) == 2, "with nobody to generate, all do"


def test_prefills_that_wait_move_with_the_role() -> None:
    cell = HandoffCell(exchanging(1, PREFILL), exchanging(2, DECODE), exchanging(3, PREFILL))
    cell.submit(1)
    (source,) = {
        worker.info.worker_id for worker in cell.core.workers.values() if worker.handoffs.outgoing
    }
    cell.core.set_roles(source, DECODE)
    other = ({P, E} - {source}).pop()
    assert cell.worker(other).handoffs.outgoing
    assert not cell.worker(source).handoffs.outgoing
    cell.step(other)
    receiver = worker_of(cell, 1)
    cell.finish(cell.order(receiver), worker_id=receiver)
    assert len(finished(cell.run_out(receiver))) == 1


def test_a_prefill_that_runs_ends_although_the_role_is_lost() -> None:
    cell = HandoffCell()
    cell.submit(1)
    plan = cell.plan(P)
    assert plan is not None
    cell.core.set_roles(P, DECODE)
    cell.answer(P, plan)
    cell.finish(cell.order())
    assert len(finished(cell.run_out())) == 1


def test_a_draining_source_waits_for_its_hand_offs() -> None:
    cell = HandoffCell()
    cell.submit(1)
    plan = cell.plan(P)
    order = cell.order()
    cell.core.drain_worker(P)
    assert plan is not None
    cell.answer(P, plan)
    assert not cell.core.is_drained(P), "the receiver has not confirmed"
    cell.finish(order)
    cell.run_out(P)
    assert cell.core.is_drained(P)


def test_a_prefill_that_waits_on_a_draining_source_goes_elsewhere() -> None:
    cell = HandoffCell()
    cell.submit(1)
    cell.core.drain_worker(P)
    assert cell.core.is_drained(P)
    assert len(finished(cell.run_out())) == 1


def running_on_a_draining_worker(cell: HandoffCell, num_tokens: int) -> tuple[bytes, bytes]:
    """Let request 1 run for some tokens, drain its worker; return it and the other."""
    cell.submit(1, PROMPT, sampling=LONG)
    cell.step(P)
    worker = worker_of(cell, 1)
    cell.finish(cell.order(worker), worker_id=worker)
    for _ in range(num_tokens):
        cell.step(worker)
    cell.core.drain_worker(worker)
    return worker, ({D, E} - {worker}).pop()


def test_a_draining_worker_moves_its_streams_with_their_blocks() -> None:
    cell = two_decoders()
    worker, other = running_on_a_draining_worker(cell, 5)
    cell.run_out(worker)
    cell.plan(other)
    order = cell.order(other)
    assert order.worker is not None
    assert order.worker.worker_id == worker
    assert len(order.names) == 5, "all full blocks, the one completed by a sample among them"
    assert not cell.core.is_drained(worker), "it keeps them until they are there"
    cell.finish(order, worker_id=other)
    assert cell.core.is_drained(worker)
    plan = cell.plan(other)
    assert plan is not None
    assert plan.starts == [20]
    cell.answer(other, plan)
    (end,) = finished(cell.run_out(other))
    assert end.num_tokens == 30
    assert cell.timelines[-1].timeline.num_migrations == 1


def test_a_stream_that_cannot_take_its_blocks_along_computes_them() -> None:
    cell = HandoffCell(
        exchanging(1, PREFILL), exchanging(2, DECODE), exchanging(3, DECODE, kv_transports=())
    )
    cell.core.set_roles(D, PREFILL)
    worker, _ = running_on_a_draining_worker(cell, 3)
    assert worker == E
    cell.core.set_roles(D, DECODE)
    cell.run_out(E)
    assert cell.orders(D) == []
    assert worker_of(cell, 1) == D
    cell.run_out(E)
    assert cell.core.is_drained(E)
    assert len(finished(cell.run_out(D))) == 1


def test_a_stream_stays_where_it_is_when_there_is_nowhere_to_go() -> None:
    cell = HandoffCell()
    cell.submit(1, PROMPT, sampling=LONG)
    cell.step(P)
    cell.finish(cell.order())
    cell.step(D)
    cell.core.drain_worker(D)
    cell.core.drain_worker(P)
    assert len(finished(cell.run_out(D))) == 1
    assert cell.core.is_drained(D)


def test_a_move_that_fails_costs_no_token() -> None:
    cell = two_decoders()
    worker, other = running_on_a_draining_worker(cell, 5)
    cell.run_out(worker)
    cell.plan(other)
    cell.finish(cell.order(other), 2, LoadOutcome.FAILED, worker_id=other)
    plan = cell.plan(other)
    assert plan is not None
    assert plan.starts == [8]
    cell.answer(other, plan)
    (end,) = finished(cell.run_out(other))
    assert end.num_tokens == 30


def test_the_topology_says_which_pairs_exchange_blocks_and_why_not() -> None:
    cell = HandoffCell(
        exchanging(1, PREFILL),
        exchanging(2, DECODE),
        exchanging(3, DECODE, layout_fingerprint=b"x" * 16),
        exchanging(4, ALL_ROLES, host_id="elsewhere"),
    )
    topology = cell.core.topology()
    assert [worker.worker_id[0] for worker in topology.workers] == [1, 2, 3, 4]
    reasons = {(pair.prefill[0], pair.decode[0]): pair.refusal for pair in topology.pairs}
    assert set(reasons) == {(1, 2), (1, 3), (1, 4), (4, 2), (4, 3)}
    assert reasons[1, 2] is None
    assert reasons[1, 3] == "their cache layouts or numerics differ"
    assert reasons[1, 4] == "the first is reached by a socket of its own host only"
    cell.submit(1)
    cell.step(P)
    cell.finish(cell.order())
    pair = next(one for one in cell.core.topology().pairs if one.refusal is None)
    assert (pair.num_transfers, pair.num_failures) == (1, 0)
    assert pair.transport is KvTransport.GRPC
    assert pair.bytes_per_second == pytest.approx(4000 / 0.004)


def test_pairs_that_do_not_fit_are_never_chosen() -> None:
    cell = HandoffCell(exchanging(1, PREFILL), exchanging(2, DECODE, layout_fingerprint=b"x" * 16))
    cell.submit(1)
    assert cell.sequence(1).state is State.WAITING
    assert any("none can hand them off" in one for one in cell.core.topology().warnings)
