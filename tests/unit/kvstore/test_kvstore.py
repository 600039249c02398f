"""The KV store's process over a real socket: health, hello, and refusals that say what they are."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import PeerRefusedError
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import control_channel_options

REQUESTS: dict[str, Any] = {
    "Pin": kv_store_pb2.PinRequest(),
    "Release": kv_store_pb2.ReleaseRequest(),
    "Delete": kv_store_pb2.DeleteRequest(),
    "Stats": kv_store_pb2.StatsRequest(),
    "WatchBlocks": kv_store_pb2.WatchBlocksRequest(),
    "Put": kv_store_pb2.PutRequest(),
    "Get": kv_store_pb2.GetRequest(),
}


class Store:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.events: list[str] = []

    async def status(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), 20)
        status: dict[str, Any] = json.loads(line)
        self.events.append(status["pagewire"])
        return status


async def start(listen: str) -> Store:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pagewire_kvstore"),
        *("--listen", listen, "--exit-with-parent"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return Store(process)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    started = await start(f"unix:{tmp_path / 'kv.sock'}")
    try:
        while "ready" not in started.events:
            await started.status()
        yield started
    finally:
        if started.process.returncode is None:
            started.process.kill()
        await started.process.wait()


@pytest.fixture
async def channel(store: Store, tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(
        f"unix:{tmp_path / 'kv.sock'}", options=control_channel_options()
    ) as opened:
        yield opened


async def test_health_and_hello(channel: grpc.aio.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    answer = await health.Check(
        health_pb2.HealthCheckRequest(service="pagewire.kvstore.v1.KvStoreService")
    )
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
    request = kv_store_pb2.HelloRequest(protocol=protocol_range())
    first = await stub.Hello(request)
    assert first.protocol == protocol_range().max
    assert len(first.store_id) == 16
    assert (await stub.Hello(request)).store_id == first.store_id


async def test_a_peer_of_another_protocol_is_refused(channel: grpc.aio.Channel) -> None:
    stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
    later = layout_pb2.ProtocolRange(min=90, max=99)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Hello(kv_store_pb2.HelloRequest(protocol=later))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    error = from_rpc_error(caught.value)
    assert isinstance(error, PeerRefusedError)
    assert "90 to 99" in error.message


async def call(stub: kv_store_pb2_grpc.KvStoreServiceStub, name: str) -> None:
    request = REQUESTS[name]
    match name:
        case "Put" | "Get":
            # Without a request: a write that races the server's refusal hides it.
            await getattr(stub, name)().read()
        case "WatchBlocks":
            async for _ in stub.WatchBlocks(request):
                pytest.fail("answered")
        case _:
            await getattr(stub, name)(request)


@pytest.mark.parametrize("name", REQUESTS)
async def test_calls_that_need_storage_are_unimplemented(
    channel: grpc.aio.Channel, name: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(kv_store_pb2_grpc.KvStoreServiceStub(channel), name)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert name in (caught.value.details() or "")
    assert from_rpc_error(caught.value).code == "unimplemented"


async def test_sigterm_ends_it_with_0(store: Store) -> None:
    store.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(store.process.wait(), 10) == 0


async def test_it_ends_when_its_standard_input_closes(store: Store) -> None:
    assert store.process.stdin is not None
    store.process.stdin.close()
    await asyncio.wait_for(store.process.wait(), 5)


async def test_a_taken_address_is_one_line(store: Store, tmp_path: Path) -> None:
    second = await start(f"unix:{tmp_path / 'kv.sock'}")
    # Not communicate(): it closes the standard input, which ends the process before it has spoken.
    assert await asyncio.wait_for(second.process.wait(), 20) == 1
    assert second.process.stderr is not None
    error = await second.process.stderr.read()
    assert b"another process listens" in error
    assert error.count(b"\n") == 1
