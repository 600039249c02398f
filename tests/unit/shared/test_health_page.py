"""Health over HTTP: as the role has noted it, and none from a loop that hangs."""

import asyncio
import time
import urllib.error
import urllib.request

import pytest

from pagewire_shared.process.metrics_server import MetricsServer
from pagewire_shared.rpc import health_page
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.server import start_server
from support.processes.processes import free_port


@pytest.fixture
def port():
    found = free_port()
    MetricsServer(lambda environ, start: [b""]).start("127.0.0.1", found)
    return found


def status(port, name):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/{name}", timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


async def statuses(port):
    names = ("startup", "readiness", "liveness")
    return [await asyncio.to_thread(status, port, name) for name in names]


async def test_it_follows_the_server(port):
    server = await start_server(Address("127.0.0.1", 0), lambda _: None, [], setting="--listen")
    assert await statuses(port) == [503, 503, 200]
    await server.set_serving(True)
    assert await statuses(port) == [200, 200, 200]
    await server.set_alive(False)
    assert await statuses(port) == [200, 200, 503]
    assert await asyncio.to_thread(status, port, "other") == 404
    await server.stop(0.0)
    assert (await statuses(port))[1] == 503


async def test_a_loop_that_hangs_serves_nothing(monkeypatch):
    health_page.note("liveness", True)
    asked = asyncio.create_task(asyncio.to_thread(health_page.is_serving, "liveness", 0.2))
    await asyncio.sleep(0.05)
    assert await asked is True
    asked = asyncio.create_task(asyncio.to_thread(health_page.is_serving, "liveness", 0.2))
    await asyncio.sleep(0)
    time.sleep(0.6)  # noqa: ASYNC251 (the loop hangs)
    assert await asked is False
