"""A frontend passes orders to sleep and wake on to its schedulers, over gRPC and HTTP."""

import asyncio
from typing import Any

import grpc.aio
import pytest
from contract.frontend.test_frontend_operators import asked, tell_topology, two_cells
from contract.frontend_gateway import gateway
from contract.gateway.test_key_rights import bearer, keyed

from pagewire.client.sleep_client import is_sleeping, sleep, wake_up
from pagewire_protos.common.v1 import sleep_pb2
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import ModelNotFoundError, UnavailableError
from pagewire_shared.rpc.errors import to_detail

ASLEEP = sleep_pb2.WorkerSleep(state=sleep_pb2.MEMORY_STATE_ASLEEP, level=2, num_bytes=5)


def worker(sleeps: bool = True, name: str = "aa") -> admin_pb2.WorkerTopology:
    return admin_pb2.WorkerTopology(worker=name, model="tiny", sleep=ASLEEP if sleeps else None)


async def answer_sleep(attach: Any) -> admin_pb2.SleepRequest:
    query = await asked(attach, "sleep")
    answer = admin_pb2.SleepResponse(workers=[worker()])
    attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, sleep=answer))
    return query.sleep


async def answer_wake(attach: Any) -> admin_pb2.WakeUpRequest:
    query = await asked(attach, "wake_up")
    answer = admin_pb2.WakeUpResponse(workers=[worker(sleeps=False)])
    attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, wake_up=answer))
    return query.wake_up


async def answer_topology(attach: Any, *workers: admin_pb2.WorkerTopology) -> None:
    query = await asked(attach, "topology")
    answer = admin_pb2.TopologyResponse(cells=[admin_pb2.CellTopology(workers=workers)])
    attach.send(admin_answer=wire.AdminAnswer(query_id=query.query_id, topology=answer))


async def test_all_cells_sleep(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(sleep(address, level=2, timeout_seconds=7))
        for attach in attaches:
            request = await answer_sleep(attach)
            assert (request.level, request.timeout_ms) == (2, 7000)
        workers = await call
    assert [one.memory for one in workers] == ["asleep", "asleep"]
    assert workers[0].sleep_num_bytes == 5


async def test_one_worker_wakes_in_its_cell(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(wake_up(address, worker="b"))
        await tell_topology(attaches[0], "aa11")
        await tell_topology(attaches[1], "bb33")
        assert (await answer_wake(attaches[1])).worker == "bb33"
        assert [one.memory for one in await call] == ["awake"]


async def test_a_model_that_no_cell_has(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(sleep(address, model="other"))
        for attach in attaches:
            await tell_topology(attach, "aa11")
        with pytest.raises(ModelNotFoundError):
            await call


@pytest.mark.parametrize("awake", [False, True])
async def test_it_sleeps_while_no_worker_is_awake(checkpoint, awake):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(is_sleeping(address))
        await answer_topology(attaches[0], worker())
        await answer_topology(attaches[1], worker(sleeps=not awake))
        assert await call is not awake


async def test_the_error_of_a_wake_comes_back(checkpoint):
    async with two_cells(checkpoint) as (address, attaches):
        call = asyncio.create_task(wake_up(address))
        query = await asked(attaches[0], "wake_up")
        error = to_detail(UnavailableError("the worker cannot wake: no file"))
        attaches[0].send(admin_answer=wire.AdminAnswer(query_id=query.query_id, error=error))
        with pytest.raises(UnavailableError, match="no file"):
            await call


async def test_http_passes_queries_on(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = asyncio.ensure_future(client.post("/sleep?level=2&mode=wait"))
        request = await answer_sleep(attach)
        assert (request.level, request.mode) == (2, sleep_pb2.SLEEP_MODE_WAIT)
        answer = await call
        assert (answer.status_code, answer.content) == (200, b"")
        call = asyncio.ensure_future(client.post("/wake_up?tags=weights"))
        assert list((await answer_wake(attach)).tags) == [sleep_pb2.MEMORY_TAG_WEIGHTS]
        assert (await call).status_code == 200
        call = asyncio.ensure_future(client.get("/is_sleeping"))
        await answer_topology(attach, worker())
        assert (await call).json() == {"is_sleeping": True}


@pytest.mark.parametrize(
    ("path", "field"),
    [("/sleep?level=0", "level"), ("/sleep?mode=abort", "mode"), ("/wake_up?tags=all", "tags")],
)
async def test_values_that_do_not_exist_are_400(checkpoint, path, field):
    async with gateway(checkpoint) as (client, attach, _):
        answer = await client.post(path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
        assert not attach.unread()


async def test_a_key_needs_admin(checkpoint, tmp_path):
    async with keyed(checkpoint, tmp_path) as (client, attach, frontend):
        for method, path in (("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping")):
            assert (await client.request(method, path)).status_code == 401
            refused = await client.request(method, path, headers=bearer("plain"))
            assert refused.status_code == 403
        admin = admin_pb2_grpc.AdminServiceStub(frontend.channel)
        for call in (
            admin.Sleep(admin_pb2.SleepRequest(), metadata=tuple(bearer("plain").items())),
            admin.WakeUp(admin_pb2.WakeUpRequest(), metadata=tuple(bearer("plain").items())),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert not attach.unread()
        call = asyncio.ensure_future(client.post("/sleep", headers=bearer("ops")))
        await answer_sleep(attach)
        assert (await call).status_code == 200
