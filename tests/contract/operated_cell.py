"""A scheduler with two scripted workers, where a test says what moves between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from contract.fake_pairs import NAMES, FakePairs
from contract.scheduler_peers import attached, eventually, frontend_of, running_scheduler
from contract.scripted_frontend import ScriptedFrontend
from contract.scripted_worker import ScriptedWorker

from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_protos.scheduler.v1 import worker_attach_pb2 as wa
from pagewire_shared.rpc.errors import from_rpc_error

PREFILL, DECODE = b"\xaa" + bytes(15), b"\xab" + bytes(15)
BLOCKS = {name: bytes([index + 1]) * 32 for index, name in enumerate(NAMES)}
BOTH = [wa.WORKER_ROLE_PREFILL, wa.WORKER_ROLE_DECODE]


@dataclass
class Cell:
    """Two workers, one pair between them, and a frontend."""

    frontend: ScriptedFrontend
    pairs: FakePairs
    prefill: ScriptedWorker
    decode: ScriptedWorker
    stub: admin_pb2_grpc.AdminServiceStub
    address: str

    async def ask(self, method: str, request: Any) -> Any:
        try:
            return await getattr(self.stub, method)(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    async def set_roles(self, worker: str, roles: list[int]) -> Any:
        return await self.ask("SetRoles", admin_pb2.SetRolesRequest(worker=worker, roles=roles))

    async def self_test(self, timeout_ms: int = 5000) -> admin_pb2.CellSelfTest:
        request = admin_pb2.SelfTestRequest(timeout_ms=timeout_ms)
        return (await self.ask("SelfTest", request)).cells[0]


@asynccontextmanager
async def cell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cell]:
    async with running_scheduler(folder) as scheduler, frontend_of(scheduler) as frontend:
        pairs = FakePairs(scheduler.loop).install(monkeypatch)
        workers = [
            ScriptedWorker(scheduler.address, worker_id=worker_id, digests=dict(BLOCKS))
            for worker_id in (PREFILL, DECODE)
        ]
        async with (
            attached(workers[0]),
            attached(workers[1]),
            grpc.aio.insecure_channel(scheduler.address) as channel,
        ):
            await eventually(lambda: len(scheduler.loop.workers) == 2)
            pairs.pair(PREFILL, DECODE)
            yield Cell(
                frontend,
                pairs,
                *workers,
                admin_pb2_grpc.AdminServiceStub(channel),
                scheduler.address,
            )
