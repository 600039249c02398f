"""gRPC plumbing on real sockets: health, typed errors, taken addresses."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import (
    InvalidRequestError,
    OverloadedError,
    PeerRefusedError,
    StartupError,
)
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import (
    control_channel_options,
    public_channel_options,
)
from pagewire_shared.rpc.server import RpcServer, start_server

SERVICE = "pagewire.scheduler.v1.AdminService"


class Refusing(admin_pb2_grpc.AdminServiceServicer):
    async def Audit(
        self, request: admin_pb2.AuditRequest, context: object
    ) -> admin_pb2.AuditResponse:  # type: ignore[override]
        if request.timeout_ms == 1:
            raise KeyError("not of the tree")
        if request.timeout_ms == 2:
            raise OverloadedError("€" * 20_000)
        raise OverloadedError("the queue is full", field="messages", retry_after_ms=250)


_STARTED: list[RpcServer] = []


@pytest.fixture(autouse=True)
async def stop_all() -> AsyncIterator[None]:
    """End every server, also that of a test that failed."""
    yield
    while _STARTED:
        await _STARTED.pop().stop(0)


async def start(address: Address) -> RpcServer:
    server = await start_server(
        address,
        lambda server: admin_pb2_grpc.add_AdminServiceServicer_to_server(Refusing(), server),  # type: ignore[no-untyped-call]
        [SERVICE],
        setting="--listen",
    )
    _STARTED.append(server)
    return server


async def test_errors_cross_the_wire_with_all_fields(tmp_path: Path) -> None:
    server = await start(Address(path=str(tmp_path / "s")))
    async with grpc.aio.insecure_channel(
        str(server.address), options=control_channel_options()
    ) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Audit(admin_pb2.AuditRequest())
        error = from_rpc_error(caught.value)
        assert isinstance(error, OverloadedError)
        assert (error.field, error.retry_after_ms) == ("messages", 250)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as other:
            await stub.Audit(admin_pb2.AuditRequest(timeout_ms=1))
        assert other.value.code() is grpc.StatusCode.UNKNOWN
    await server.stop(0)


async def test_invalid_bytes_are_an_invalid_argument(tmp_path: Path) -> None:
    server = await start(Address(path=str(tmp_path / "s")))
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE}/Audit")(b"\xff")
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert isinstance(from_rpc_error(caught.value), InvalidRequestError)
    await server.stop(0)


async def test_a_burst_of_calls_waits_until_it_is_accepted(tmp_path: Path) -> None:
    server = await start(Address(path=str(tmp_path / "s")))
    with grpc.insecure_channel(str(server.address), options=control_channel_options()) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        calls: list[Any] = []

        def call() -> None:
            request = admin_pb2.AuditRequest()
            calls.extend(stub.Audit.future(request, timeout=60) for _ in range(2000))

        burst = threading.Thread(target=call)
        burst.start()
        # Nothing is accepted meanwhile: this is the event loop.
        burst.join()
        codes = await asyncio.to_thread(lambda: Counter(call.code() for call in calls))
    assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED: 2000}


BUSY_SERVER = """
import asyncio, time
import grpc
from pagewire_shared.rpc.options import server_options

async def run():
    server = grpc.aio.server(options=server_options())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    time.sleep(120)

asyncio.run(run())
"""


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_large_calls_that_are_not_accepted_stay_with_their_senders() -> None:
    num_calls, size = 400, 1_000_000
    with subprocess.Popen([sys.executable, "-c", BUSY_SERVER], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            address = f"127.0.0.1:{int(server.stdout.readline())}"
            before = resident_bytes(server.pid)
            with grpc.insecure_channel(address, options=public_channel_options()) as channel:
                method = channel.unary_unary("/a.Service/Call")
                calls = [method.future(bytes(size), timeout=60) for _ in range(num_calls)]
                sizes = [before]
                while len(sizes) < 20 or sizes[-1] > sizes[-10]:
                    time.sleep(0.1)
                    sizes.append(resident_bytes(server.pid))
                assert max(sizes) - before < num_calls * 128 * 1024
                assert not any(call.done() for call in calls)
        finally:
            server.kill()


async def test_a_long_message_fits_into_a_status(tmp_path: Path) -> None:
    server = await start(Address(path=str(tmp_path / "s")))
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Audit(admin_pb2.AuditRequest(timeout_ms=2))
        error = from_rpc_error(caught.value)
        assert isinstance(error, OverloadedError)
        assert error.message == caught.value.details() == "€" * 341 + "..."
    await server.stop(0)


async def test_health_follows_set_serving(tmp_path: Path) -> None:
    server = await start(Address(host="127.0.0.1", port=0))
    assert server.address.port > 0
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await server.set_serving(True)
        assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
    await server.stop(0)


async def test_startup_readiness_and_liveness_have_their_own_health() -> None:
    server = await start(Address(host="127.0.0.1", port=0))
    async with grpc.aio.insecure_channel(str(server.address)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def answers() -> tuple[bool, ...]:
            names = ("", "startup", "readiness", "liveness")
            checks = [await stub.Check(health_pb2.HealthCheckRequest(service=n)) for n in names]
            return tuple(one.status == health_pb2.HealthCheckResponse.SERVING for one in checks)

        assert await answers() == (False, False, False, True)
        await server.set_started()
        assert await answers() == (False, True, False, True)
        await server.set_serving(True)
        await server.set_alive(False)
        assert await answers() == (True, True, True, False)
        await server.set_serving(False)
        assert await answers() == (False, True, False, False)
    await server.stop(0)


async def test_taken_address_is_one_clear_error(tmp_path: Path) -> None:
    for address in (Address(host="127.0.0.1", port=0), Address(path=str(tmp_path / "t"))):
        server = await start(address)
        with pytest.raises(StartupError, match="--listen"):
            await start(server.address)
        await server.stop(0)


def test_address_texts() -> None:
    assert parse_address("[::1]:50", setting="x") == Address(host="::1", port=50)
    assert str(Address(host="::1", port=50)) == "[::1]:50"
    assert parse_address("unix:/a/b", setting="x").path == "/a/b"
    for text in ("nowhere", "host:port", "h:70000", "unix:", "unix:/" + "x" * 120):
        with pytest.raises(StartupError, match="--scheduler"):
            parse_address(text, setting="--scheduler")


def test_refusals_are_recognised() -> None:
    error = PeerRefusedError("another model")
    assert error.status_name == "FAILED_PRECONDITION"
    assert str(error) == "another model"


async def serves_again(target: str) -> None:
    """New calls are answered as before, over new connections, too. One that came while the server
    ended may have been cancelled."""
    while True:
        async with grpc.aio.insecure_channel(target) as fresh:
            health = health_pb2_grpc.HealthStub(fresh)
            request = health_pb2.HealthCheckRequest()
            try:
                answer = await health.Check(request, timeout=10, wait_for_ready=True)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.02)
                continue
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            return


@pytest.mark.parametrize("where", ["unix", "tcp"])
async def test_a_path_that_is_not_utf8_does_not_end_other_calls(where: str, tmp_path: Path) -> None:
    """grpcio's server takes no new calls after it."""
    address = (
        Address(path=str(tmp_path / "s"))
        if where == "unix"
        else parse_address("127.0.0.1:0", setting="--listen")
    )
    server = await start(address)
    await server.set_serving(True)
    target = str(server.address)
    async with grpc.aio.insecure_channel(target, options=control_channel_options()) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        for _ in range(3):
            async with grpc.aio.insecure_channel(target) as other:
                unary: Any = other.unary_unary
                with pytest.raises(grpc.aio.AioRpcError):
                    await unary(b"/pagewire\xef/Audit")(b"", timeout=10)
            await asyncio.wait_for(serves_again(target), 20)
        # And one that was open goes on.
        await server.set_serving(False)
        told = await asyncio.wait_for(watch.read(), 10)
        assert told.status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
