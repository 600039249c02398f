"""Orders to sleep and wake over the admin service, between scripted workers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_worker import expected
from contract.sleeping_worker import ASLEEP, SleepingWorker

from pagewire_protos.common.v1 import sleep_pb2
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    UnavailableError,
)
from pagewire_shared.rpc.errors import from_rpc_error

WEIGHTS, KV_CACHE = sleep_pb2.MEMORY_TAG_WEIGHTS, sleep_pb2.MEMORY_TAG_KV_CACHE


class SleepCell:
    """A scheduler, a worker, a frontend, and an operator."""

    def __init__(self, worker: SleepingWorker, frontend: Any, stub: Any, loop: Any) -> None:
        self.worker = worker
        self.frontend = frontend
        self.loop = loop
        self._stub = stub

    async def sleep(self, **fields: Any) -> admin_pb2.WorkerTopology:
        return await self._ask("Sleep", admin_pb2.SleepRequest(**fields))

    async def wake_up(self, **fields: Any) -> admin_pb2.WorkerTopology:
        return await self._ask("WakeUp", admin_pb2.WakeUpRequest(**fields))

    async def _ask(self, method: str, request: Any) -> admin_pb2.WorkerTopology:
        try:
            answer = await getattr(self._stub, method)(request, timeout=10)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        (worker,) = answer.workers
        return worker


@asynccontextmanager
async def open_cell(folder: Path, **changes: Any) -> AsyncIterator[SleepCell]:
    async with running_scheduler(folder) as scheduler, frontend_of(scheduler) as frontend:
        worker = SleepingWorker(scheduler.address, **changes)
        async with attached(worker), grpc.aio.insecure_channel(scheduler.address) as channel:
            await eventually(lambda: len(scheduler.loop.workers) == 1)
            stub = admin_pb2_grpc.AdminServiceStub(channel)
            yield SleepCell(worker, frontend, stub, scheduler.loop)


async def test_a_worker_sleeps_and_wakes(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        found = await cell.sleep(level=2)
        assert (found.sleep.state, found.sleep.level, found.sleep.num_bytes) == (ASLEEP, 2, 77)
        assert cell.worker.orders[0].level == 2
        await cell.sleep(level=1)
        assert len(cell.worker.orders) == 1, "it sleeps already"
        found = await cell.wake_up(tags=[WEIGHTS])
        assert (found.sleep.state, list(found.sleep.awake)) == (ASLEEP, [WEIGHTS])
        found = await cell.wake_up()
        assert not found.HasField("sleep")
        assert list(cell.worker.orders[-1].tags) == [WEIGHTS, KV_CACHE]
        await cell.wake_up()
        assert len(cell.worker.orders) == 3, "it is awake already"


async def test_a_failed_wake_is_answered_and_can_be_tried_again(tmp_path: Path) -> None:
    async with open_cell(tmp_path, faults=["the checkpoint is away"]) as cell:
        await cell.sleep()
        with pytest.raises(UnavailableError, match="the checkpoint is away"):
            await cell.wake_up()
        assert not (await cell.wake_up()).HasField("sleep")


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"level": 3}, InvalidRequestError, "level must be 1 or 2"),
        ({"mode": 9}, InvalidRequestError, "mode 9 is not known"),
        ({"worker": "zz"}, InvalidRequestError, "no attached worker is called 'zz'"),
        ({"model": "other"}, ModelNotFoundError, "no worker serves 'other'"),
    ],
)
async def test_orders_that_mean_nothing(
    tmp_path: Path, fields: dict[str, Any], error: type[Exception], reason: str
) -> None:
    async with open_cell(tmp_path) as cell:
        with pytest.raises(error, match=reason):
            await cell.sleep(**fields)
        assert not cell.worker.orders


async def test_a_worker_without_sleep_mode_refuses(tmp_path: Path) -> None:
    async with open_cell(tmp_path, can_sleep=False) as cell:
        with pytest.raises(InvalidRequestError, match="--enable-sleep-mode"):
            await cell.sleep()


async def test_a_worker_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ignore(*_: object) -> None: ...

    async with open_cell(tmp_path) as cell:
        monkeypatch.setattr(cell.worker, "_receive", ignore)
        with pytest.raises(UnavailableError, match=r"neither sleeps nor says why within 0\.2 s"):
            await cell.sleep(timeout_ms=200)


async def test_a_request_wakes_an_idle_worker(tmp_path: Path) -> None:
    async with open_cell(tmp_path, sleep_after_ms=200) as cell:
        await eventually(lambda: cell.worker.sleep is not None and bool(cell.loop.workers))
        assert cell.worker.sleep is not None
        assert cell.worker.sleep.wakes_on_request
        await cell.frontend.submit(1, [1, 2, 3], max_tokens=4)
        await _until(lambda: cell.frontend.tokens.get((1, 0)) == expected([1, 2, 3], 4))


async def _until(is_so: Callable[[], bool]) -> None:
    await asyncio.wait_for(eventually(is_so), 10)
