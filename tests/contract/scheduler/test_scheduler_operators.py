"""Roles, topology and self-test of a scheduler, over its admin service and through a frontend's
stream, between scripted workers; what moves between them is scripted, too."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contract.fake_pairs import NAMES, moved
from contract.operated_cell import BOTH, DECODE, PREFILL, Cell, cell
from contract.scheduler_peers import eventually

from pagewire_protos.common.v1 import layout_pb2, timeline_pb2
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as fa
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_scheduler.core.data.events import TimelineEvent, TokensEvent
from pagewire_scheduler.core.data.queue_reasons import QueueReason
from pagewire_scheduler.core.data.timeline import Timeline
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_shared.errors import InternalError, InvalidRequestError
from pagewire_shared.kv.transport import KvTransport


@pytest.fixture
def open_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    return partial(cell, tmp_path, monkeypatch)


async def test_a_worker_gets_other_roles(open_cell) -> None:
    async with open_cell() as cell:
        answer = await cell.set_roles("AA", [wa.WORKER_ROLE_PREFILL])
        assert answer.worker.worker == PREFILL.hex()
        assert list(answer.worker.roles) == [wa.WORKER_ROLE_PREFILL]
        assert cell.pairs.roles == {PREFILL: frozenset({Role.PREFILL})}
        await eventually(lambda: cell.prefill.roles == [wa.WORKER_ROLE_PREFILL])
        await cell.set_roles(DECODE.hex(), BOTH)
        await eventually(lambda: cell.decode.roles == BOTH)
        # The core knows when it was.
        now = cell.pairs.loop.clock()
        assert cell.pairs.times[0] < cell.pairs.times[1] <= now < cell.pairs.times[0] + 60


@pytest.mark.parametrize(
    ("worker", "roles", "field", "reason"),
    [
        ("a", BOTH, "worker", f"several workers: {PREFILL.hex()}, {DECODE.hex()}"),
        ("bb", BOTH, "worker", "no attached worker is called 'bb'; there are: aa000000, ab000000"),
        ("", BOTH, "worker", "must name a worker"),
        ("aa", [], "roles", "at least one role"),
        ("aa", [0], "roles", "unknown"),
        ("aa", [7], "roles", "unknown"),
    ],
)
async def test_roles_that_cannot_be_changed_are_refused(
    open_cell, worker, roles, field, reason
) -> None:
    async with open_cell() as cell:
        with pytest.raises(InvalidRequestError, match=reason) as caught:
            await cell.set_roles(worker, roles)
        assert caught.value.field == field
        assert not cell.pairs.roles


async def test_timelines_come_before_the_tokens_of_the_same_round(open_cell) -> None:
    async with open_cell() as cell:
        who = (cell.frontend.frontend_id, 4, 0, 0)
        named = dict(zip(("frontend_id", "handle", "choice", "epoch"), who, strict=True))
        timeline = Timeline(
            queue_seconds=0.5,
            queue_waits=tuple(reason.value / 100 for reason in QueueReason),
            paused_seconds=0.125,
            prefill_seconds=0.25,
            transfer_seconds=0.0015,
            transfer_bytes=9,
            transport=KvTransport.GRPC,
            num_preemptions=1,
            num_migrations=2,
            is_handed_off=True,
            cached_tokens=(("memory", 3),),
        )
        cell.frontend.tokens[4, 0] = []
        events = [TokensEvent(*who, 0, (5,), None, 3), TimelineEvent(**named, timeline=timeline)]
        cell.pairs.loop.frontends[cell.frontend.frontend_id].send_events(events)
        await cell.frontend.until(lambda: bool(cell.frontend.tokens[4, 0]))
        heard = [kind for kind in cell.frontend.heard if kind in ("timelines", "tokens")]
        assert heard == ["timelines", "tokens"]
        [said] = cell.frontend.timelines
        assert (said.handle, said.choice, said.epoch) == (4, 0, 0)
        facts = said.timeline
        assert (facts.queue_us, facts.prefill_us, facts.transfer_us) == (500_000, 250_000, 1500)
        name_of = timeline_pb2.QueueReason.Name
        waits = {name_of(one.reason): one.wait_us for one in facts.queue_waits}
        # The first is 0, and is not sent.
        assert waits == {
            f"QUEUE_REASON_{one.name}": one.value * 10_000 for one in list(QueueReason)[1:]
        }
        assert facts.paused_us == 125_000
        assert (facts.transfer_bytes, facts.transport) == (9, layout_pb2.KV_TRANSPORT_GRPC)
        assert (facts.num_preemptions, facts.num_migrations) == (1, 2)
        assert facts.is_handed_off
        assert [(one.tier, one.num_tokens) for one in facts.cached_tokens] == [("memory", 3)]


async def test_topology_names_workers_and_pairs(open_cell) -> None:
    async with open_cell() as cell:
        cell.pairs.pair(DECODE, PREFILL, "the layouts differ")
        cell.pairs.warnings = ("something is odd",)
        [seen] = (await cell.ask("Topology", admin_pb2.TopologyRequest())).cells
        assert seen.generation == cell.pairs.loop.generation.number
        assert (seen.handoff, list(seen.warnings)) == ("auto", ["something is odd"])
        worker = next(worker for worker in seen.workers if worker.worker == DECODE.hex())
        assert (worker.model, list(worker.roles), worker.layout) == ("tiny", BOTH, "0f" * 16)
        assert (worker.kv_endpoint, worker.num_running, worker.num_waiting) == ("127.0.0.1:5", 1, 2)
        assert list(worker.kv_transports) == [layout_pb2.KV_TRANSPORT_GRPC]
        there, back = seen.pairs
        assert (there.prefill, there.decode, there.refusal) == (PREFILL.hex(), DECODE.hex(), "")
        assert (there.bytes_per_second, there.num_transfers, there.num_failures) == (1e6, 3, 1)
        assert (back.refusal, back.num_transfers) == ("the layouts differ", 0)
        assert not back.HasField("transport")
        assert not back.HasField("bytes_per_second")


async def test_a_self_test_compares_the_bytes_of_both_workers(open_cell) -> None:
    async with open_cell() as cell:
        test = await cell.self_test()
        assert not test.problems
        [probe] = test.probes
        assert (probe.prefill, probe.decode, probe.error) == (PREFILL.hex(), DECODE.hex(), "")
        assert (probe.num_blocks, probe.num_bytes, probe.time_us) == (2, 128, 250_000)
        assert probe.transport == layout_pb2.KV_TRANSPORT_SHARED_MEMORY
        assert probe.is_equal
        assert cell.pairs.ended == [1]


def other_bytes(cell: Cell) -> None:
    cell.decode.digests[NAMES[1]] = b"x" * 32


def absent_block(cell: Cell) -> None:
    del cell.prefill.digests[NAMES[0]]


def failed(cell: Cell) -> None:
    cell.pairs.outcome = partial(moved, names=(), transport=None, error="it broke")


def no_block(cell: Cell) -> None:
    cell.pairs.outcome = partial(moved, names=())


def never_ends(cell: Cell) -> None:
    cell.pairs.outcome = lambda prefill, decode: None


def silent(cell: Cell) -> None:
    cell.decode.digests = None


def cannot_begin(cell: Cell) -> None:
    def refuse(prefill: bytes, decode: bytes) -> None:
        raise InternalError("no probe now")

    cell.pairs.outcome = refuse


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (other_bytes, "the bytes that arrived are not those that were computed"),
        (absent_block, "worker aa000000 does not hold all of the blocks"),
        (failed, "it broke"),
        (no_block, "no block arrived"),
        (never_ends, "it did not end in time"),
        (silent, "it did not end in time"),
        (cannot_begin, "no probe now"),
    ],
)
async def test_a_self_test_says_what_is_wrong(open_cell, harm, reason) -> None:
    async with open_cell() as cell:
        harm(cell)
        test = await cell.self_test(timeout_ms=400)
        assert list(test.problems) == [f"aa000000 to ab000000: {reason}"]
        assert not test.probes[0].is_equal
        assert cell.pairs.ended == ([] if harm is cannot_begin else [1])


async def test_a_worker_that_leaves_during_a_self_test_is_named(open_cell) -> None:
    async with open_cell() as cell:
        cell.decode.digests = None
        asked = asyncio.create_task(cell.self_test())
        await eventually(lambda: "block_digest_query" in cell.decode.heard)
        cell.pairs.loop.workers[DECODE].close(None)
        assert list((await asked).problems) == ["aa000000 to ab000000: worker ab000000 has left"]


async def test_workers_of_different_roles_without_a_pair_are_a_problem(open_cell) -> None:
    async with open_cell() as cell:
        cell.pairs.pairs.clear()
        cell.pairs.pair(PREFILL, DECODE, "no way")
        test = await cell.self_test()
        assert [probe.error for probe in test.probes] == ["no way"]
        # Whoever may do everything needs nobody.
        assert not test.problems
        await cell.set_roles("aa", [wa.WORKER_ROLE_PREFILL])
        test = await cell.self_test()
        assert list(test.problems) == ["no pair of workers exchanges KV blocks of tiny"]
        assert not cell.pairs.begun


async def test_a_frontend_may_ask_for_all_of_it(open_cell) -> None:
    async with open_cell() as cell:
        for query_id, query in enumerate(
            (
                {"set_roles": admin_pb2.SetRolesRequest(worker="ab", roles=BOTH)},
                {"topology": admin_pb2.TopologyRequest()},
                {"self_test": admin_pb2.SelfTestRequest(timeout_ms=3000)},
                {"set_roles": admin_pb2.SetRolesRequest(worker="zz", roles=BOTH)},
            )
        ):
            message = fa.AdminQuery(query_id=query_id, **query)
            await cell.frontend.send(fa.AttachFrontendRequest(admin_query=message))
        await cell.frontend.until(lambda: len(cell.frontend.answers) == 4)
        roles, topology, test, refused = sorted(
            cell.frontend.answers, key=lambda answer: answer.query_id
        )
        assert roles.set_roles.worker.worker == DECODE.hex()
        assert len(topology.topology.cells[0].workers) == 2
        assert test.self_test.cells[0].probes[0].is_equal
        assert refused.error.field == "worker"
