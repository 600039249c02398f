"""Updates of weights over the admin service, between scripted workers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_worker import expected
from contract.updating_worker import UpdatingWorker

from pagewire_protos.common.v1 import weights_pb2
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PagewireError,
    UnavailableError,
)
from pagewire_shared.rpc.errors import from_rpc_error

PROMPT = [1, 2, 3]


class UpdateCell:
    """A scheduler, two workers, a frontend, and an operator."""

    def __init__(self, workers: list[UpdatingWorker], frontend: Any, stub: Any, loop: Any) -> None:
        self.workers = workers
        self.frontend = frontend
        self.loop = loop
        self._stub = stub

    async def update(self, path: str, **fields: Any) -> list[str]:
        """The labels of the workers afterwards."""
        request = admin_pb2.UpdateWeightsRequest(path=path, **fields)
        try:
            answer = await self._stub.UpdateWeights(request, timeout=20)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return [one.weights.label for one in answer.workers]

    @property
    def paths(self) -> list[str]:
        return [worker.source.path for worker in self.workers]

    async def answers(self, handle: int) -> bool:
        await self.frontend.submit(handle, PROMPT, max_tokens=4)
        await _until(lambda: self.frontend.tokens.get((handle, 0)) == expected(PROMPT, 4))
        return True


@asynccontextmanager
async def open_cell(folder: Path) -> AsyncIterator[UpdateCell]:
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(running_scheduler(folder))
        frontend = await stack.enter_async_context(frontend_of(scheduler))
        workers = [UpdatingWorker(scheduler.address) for _ in range(2)]
        for worker in workers:
            await stack.enter_async_context(attached(worker))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(scheduler.address))
        await eventually(lambda: len(scheduler.loop.workers) == 2)
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        yield UpdateCell(workers, frontend, stub, scheduler.loop)


async def test_all_workers_have_the_new_weights(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        assert await cell.answers(1)
        assert await cell.update("/b", version="step 2") == ["step 2", "step 2"]
        assert cell.paths == ["/b", "/b"]
        assert await cell.answers(2)
        assert await cell.update("") == ["", ""]
        assert cell.paths == ["", ""]


async def test_weights_that_one_worker_cannot_serve_change_nothing(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        cell.workers[1].misfits.add("/b")
        with pytest.raises(InvalidRequestError, match="lacks a tensor") as caught:
            await cell.update("/b")
        assert caught.value.field == "path"
        assert [worker.updates for worker in cell.workers] == [[], []]
        assert await cell.answers(1)


async def test_if_one_worker_cannot_load_all_go_back(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        await cell.update("/a")
        cell.workers[1].unloadable.add("/b")
        cell.workers[0].seconds = 0.2
        with pytest.raises(UnavailableError, match="no memory; all workers have the weights of"):
            await cell.update("/b")
        assert cell.paths == ["/a", "/a"]
        assert [len(worker.updates) for worker in cell.workers] == [3, 2]
        assert await cell.answers(1)
        cell.workers[1].unloadable.clear()
        await cell.update("/b")
        assert cell.paths == ["/b", "/b"]


async def test_requests_that_take_too_long_end_the_update(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        await cell.frontend.submit(1, PROMPT, max_tokens=200)
        await _until(lambda: bool(cell.frontend.tokens.get((1, 0))))
        for worker in cell.workers:
            worker.gate.clear()
        with pytest.raises(UnavailableError, match=r"do not end within 0\.2 s; the weights are as"):
            await cell.update("/b", timeout_ms=200)
        for worker in cell.workers:
            worker.gate.set()
        await _until(lambda: cell.frontend.tokens.get((1, 0)) == expected(PROMPT, 200))
        assert cell.paths == ["", ""]
        assert await cell.answers(2)


async def test_abort_ends_what_has_begun(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        await cell.frontend.submit(1, PROMPT, max_tokens=200)
        await _until(lambda: bool(cell.frontend.tokens.get((1, 0))))
        await cell.update("/b", mode=weights_pb2.UPDATE_MODE_ABORT)
        await _until(lambda: (1, 0) in cell.frontend.finished)
        assert cell.frontend.finished[1, 0].error.code == "weights_changed"
        assert await cell.answers(2)


async def test_one_update_at_a_time(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        cell.workers[0].seconds = 0.5
        first = asyncio.create_task(cell.update("/b"))
        await eventually(lambda: bool(cell.workers[0].updates))
        with pytest.raises(OverloadedError, match="another update of tiny is under way"):
            await cell.update("/c")
        await first


async def test_an_update_outlives_its_caller(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        for worker in cell.workers:
            worker.seconds = 0.3
        call = asyncio.create_task(cell.update("/b"))
        await eventually(lambda: bool(cell.workers[0].updates))
        call.cancel()
        await eventually(lambda: cell.paths == ["/b", "/b"])
        assert await cell.answers(1)


async def test_a_worker_that_sleeps_is_woken(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        await cell._stub.Sleep(admin_pb2.SleepRequest(), timeout=10)
        await cell.update("/b")
        assert cell.paths == ["/b", "/b"]
        assert await cell.answers(1)


async def test_a_worker_that_starts_anew_is_given_the_newest(tmp_path: Path) -> None:
    async with open_cell(tmp_path) as cell:
        await cell.update("/b", version="step 2")
        late = UpdatingWorker(cell.workers[0].address)
        async with attached(late):
            await eventually(lambda: late.source.path == "/b")
            assert late.source.label == "step 2"
            await eventually(lambda: len(cell.loop.workers) == 3)
            assert await cell.answers(1)


@pytest.mark.parametrize(
    ("path", "fields", "error", "reason"),
    [
        ("here", {}, InvalidRequestError, "path must begin with /"),
        ("/b", {"version": "x" * 65}, InvalidRequestError, "version is at most 64"),
        ("/b", {"mode": 9}, InvalidRequestError, "mode 9 is not known"),
        ("/b", {"model": "other"}, ModelNotFoundError, "no worker serves 'other'"),
        ("", {}, InvalidRequestError, "path is the folder that is served now"),
    ],
)
async def test_orders_that_mean_nothing(
    tmp_path: Path, path: str, fields: dict[str, Any], error: type[PagewireError], reason: str
) -> None:
    async with open_cell(tmp_path) as cell:
        with pytest.raises(error, match=reason):
            await cell.update(path, **fields)
        assert not any(worker.updates for worker in cell.workers)


async def _until(is_so: Any) -> None:
    await asyncio.wait_for(eventually(is_so), 10)
