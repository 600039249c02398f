"""A frontend passes operators' questions about workers on to its schedulers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from contract.frontend_peers import (
    Attach,
    ScriptedScheduler,
    attached_frontend,
    listening,
    running_frontend,
    served,
)

from pagewire.client.topology_client import self_test, set_roles, topology
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.rpc.errors import to_detail


def worker(name: str, *roles: int) -> admin_pb2.WorkerTopology:
    return admin_pb2.WorkerTopology(worker=name, model="tiny", roles=roles)


async def asked(attach: Attach, kind: str) -> wire.AdminQuery:
    """Return the next question, which must be of `kind`."""
    query = await attach.next("admin_query")
    assert query.WhichOneof("query") == kind
    return query


async def tell_topology(attach: Attach, *names: str) -> None:
    query = await asked(attach, "topology")
    cell = admin_pb2.CellTopology(handoff="auto", workers=[worker(name) for name in names])
    answer = admin_pb2.TopologyResponse(cells=[cell])
    attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, topology=answer))


async def take_roles(attach: Attach) -> admin_pb2.SetRolesRequest:
    query = await asked(attach, "set_roles")
    answer = admin_pb2.SetRolesResponse(
        worker=worker(query.set_roles.worker, *query.set_roles.roles)
    )
    attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, set_roles=answer))
    return query.set_roles


@asynccontextmanager
async def two_cells(checkpoint) -> AsyncIterator[tuple[str, list[Attach]]]:
    """A frontend of two schedulers."""
    async with AsyncExitStack() as stack:
        schedulers = [ScriptedScheduler(served(checkpoint), generation=n) for n in (1000, 2000)]
        ports = [await stack.enter_async_context(listening(one)) for one in schedulers]
        frontend = await stack.enter_async_context(running_frontend(checkpoint, ports))
        yield frontend.address, [await one.attached() for one in schedulers]


async def test_one_cell_is_asked_as_it_is(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = asyncio.create_task(set_roles(frontend.address, "ab", ["decode"]))
        request = await take_roles(attach)
        assert (request.worker, list(request.roles)) == ("ab", [wa.WORKER_ROLE_DECODE])
        assert (await call).roles == ("decode",)


async def test_an_error_of_the_scheduler_comes_back(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = asyncio.create_task(set_roles(frontend.address, "ab", ["decode"]))
        query = await asked(attach, "set_roles")
        error = to_detail(InvalidRequestError("no such worker", field="worker"))
        attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, error=error))
        with pytest.raises(InvalidRequestError, match="no such worker") as caught:
            await call
        assert caught.value.field == "worker"


async def test_all_cells_say_their_topology(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(topology(address))
        await tell_topology(attaches[0], "aa")
        await tell_topology(attaches[1], "bb")
        cells = await call
    assert [[one.worker for one in cell.workers] for cell in cells] == [["aa"], ["bb"]]


async def test_all_cells_test_themselves(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(self_test(address, timeout_seconds=4))
        for generation, attach in enumerate(attaches):
            query = await asked(attach, "self_test")
            assert query.self_test.timeout_ms == 4000
            cell = admin_pb2.CellSelfTest(generation=generation, problems=["it broke"])
            answer = admin_pb2.SelfTestResponse(cells=[cell])
            attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, self_test=answer))
        cells = await call
    assert [cell.generation for cell in cells] == [0, 1]
    assert cells[1].problems == ("it broke",)


async def test_roles_change_in_the_cell_that_has_the_worker(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(set_roles(address, "B", ["prefill", "decode"]))
        await tell_topology(attaches[0], "aa11")
        await tell_topology(attaches[1], "ab22", "bb33")
        request = await take_roles(attaches[1])
        assert request.worker == "bb33"
        assert (await call).roles == ("prefill", "decode")


@pytest.mark.parametrize(("name", "reason"), [("a", "several workers: aa11, ab22"), ("c", "'c'")])
async def test_a_name_that_is_none_over_all_cells_changes_nothing(checkpoint, name, reason):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(set_roles(address, name, ["decode"]))
        await tell_topology(attaches[0], "aa11")
        await tell_topology(attaches[1], "ab22")
        with pytest.raises(InvalidRequestError, match=reason) as caught:
            await call
        assert caught.value.field == "worker"


async def test_a_scheduler_that_is_lost_meanwhile_is_named(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        call = asyncio.create_task(topology(frontend.address))
        await asked(attach, "topology")
        attach.end()
        with pytest.raises(UnavailableError, match="lost the scheduler"):
            await call
