"""The KV store's process over a real socket: health, hello, restarts, metrics, flags."""

import asyncio
import contextlib
import json
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pagewire_kvstore.config import KvStoreConfig
from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import ForbiddenError, StartupError
from pagewire_shared.rpc.options import control_channel_options
from support.processes.store_server import (
    MIB,
    announced,
    granted,
    layout,
    opened,
    payload_of,
    sent,
    to_publish,
)


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


@contextlib.asynccontextmanager
async def started(listen: str, *flags: str) -> AsyncIterator[Store]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "pagewire_kvstore"),
        *("--listen", listen, "--exit-with-parent", "--memory-size", "4MiB"),
        *("--shared-memory-path", str(Path(listen.removeprefix("unix:")).parent), *flags),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Store(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until_ready(store: Store) -> None:
    while "ready" not in store.events:
        await store.status()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with started(f"unix:{tmp_path / 'kv.sock'}") as made:
        await until_ready(made)
        yield made


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
    assert first.shared_memory.num_bytes == 4 * MIB
    assert (await stub.Hello(request)).store_id == first.store_id


async def put_and_get(address: str, *, is_new: bool) -> None:
    shape = layout(1000)
    async with grpc.aio.insecure_channel(address, options=control_channel_options()) as channel:
        stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
        if is_new:
            call = stub.Put()
            await call.write(announced(shape, 1))
            await call.write(sent(1, payload_of(1, 1000)))
            await call.write(to_publish(1))
            kinds = [(await call.read()).WhichOneof("message") for _ in range(3)]
            assert kinds == ["credit", "wanted", "published"]
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF
        get = stub.Get(iter([opened(shape, 1), granted(1)]))
        responses = [await get.read() for _ in range(2)]
        assert responses[0].source.tier == ("memory" if is_new else "disk")
        assert responses[1].chunk.data == payload_of(1, 1000)
        assert await get.read() is grpc.aio.EOF


async def test_blocks_on_disk_outlive_the_process(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'kv.sock'}"
    flags = ("--disk-path", str(tmp_path / "disk"))
    for is_new in (True, False):
        async with started(address, *flags) as store:
            await until_ready(store)
            await put_and_get(address, is_new=is_new)
            store.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(store.process.wait(), 10) == 0


async def test_metrics(tmp_path: Path, unused_tcp_port: int) -> None:
    address = f"unix:{tmp_path / 'kv.sock'}"
    async with started(address, "--metrics-port", str(unused_tcp_port)) as store:
        await until_ready(store)
        await put_and_get(address, is_new=True)
        text = ""
        url = f"http://127.0.0.1:{unused_tcp_port}/metrics"
        async with asyncio.timeout(10):
            while 'pagewire_kvstore_blocks{tier="memory"} 1.0' not in text:
                text = await asyncio.to_thread(page, url)
    for line in (
        'pagewire_kvstore_put_bytes_total{transport="grpc"} 1000.0',
        'pagewire_kvstore_get_bytes_total{tier="memory",transport="grpc"} 1000.0',
        'pagewire_kvstore_hits_total{tier="memory"} 1.0',
        'pagewire_kvstore_tier_works{tier="memory"} 1.0',
        "pagewire_kvstore_put_seconds_count 1.0",
        "pagewire_kvstore_get_seconds_count 1.0",
    ):
        assert line in text.splitlines()


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read(), "utf-8")


async def test_too_much_memory_is_an_error_of_one_line(tmp_path: Path) -> None:
    flags = ("--memory-size", "1000TiB", "--shared-memory-path", "off")
    async with started(f"unix:{tmp_path / 'kv.sock'}", *flags) as store:
        assert "memory" in await refusal(store)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory_size": 1}, "--memory-size must be at least"),
        ({"disk_size": 1}, "--disk-size must be at least"),
        ({"tenant": ("a",)}, "no tenant with its quota"),
        ({"tenant": ("a=1GiB", "a=2GiB")}, "named twice"),
        ({"stall_seconds": float("nan")}, "--stall-seconds must be more than 0"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(StartupError, match=message):
        KvStoreConfig(**settings)


def test_flags_set_tenants_and_quotas() -> None:
    config = KvStoreConfig(tenant=("a=1KiB", "b=x=2KiB"), tenant_quota=5, known_tenants_only=True)
    tenants = config.tenants()
    assert [tenants.quota(name) for name in ("a", "b=x", "c")] == [1024, 2048, 5]
    tenants.check("")
    with pytest.raises(ForbiddenError, match="'c' is not known"):
        tenants.check("c")


async def refusal(store: Store) -> str:
    # Not communicate(): it closes the standard input, which ends the process before it has spoken.
    assert await asyncio.wait_for(store.process.wait(), 20) == 1
    assert store.process.stderr is not None
    error = str(await store.process.stderr.read(), "utf-8")
    assert error.count("\n") == 1
    return error


async def test_a_killed_store_frees_its_memory(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'kv.sock'}"
    for _ in range(2):
        async with started(address) as store:
            await until_ready(store)
            assert len(arenas(tmp_path)) == 1
    async with started(address) as store:
        await until_ready(store)
        store.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(store.process.wait(), 10) == 0
    assert arenas(tmp_path) == []


def arenas(folder: Path) -> list[Path]:
    return list(folder.glob("*.arena"))


async def test_sigterm_ends_it_with_0(store: Store) -> None:
    store.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(store.process.wait(), 10) == 0


async def test_it_ends_when_its_standard_input_closes(store: Store) -> None:
    assert store.process.stdin is not None
    store.process.stdin.close()
    await asyncio.wait_for(store.process.wait(), 5)


async def test_a_taken_address_is_one_line(store: Store, tmp_path: Path) -> None:
    async with started(f"unix:{tmp_path / 'kv.sock'}") as second:
        assert "another process listens" in await refusal(second)
