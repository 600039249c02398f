"""Which addresses processes listen on unless told otherwise, and what they say of open ones."""

import logging
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from pagewire.config import ServeConfig
from pagewire_frontend.config import FrontendConfig
from pagewire_kvstore.config import KvStoreConfig
from pagewire_scheduler.config import SchedulerConfig
from pagewire_shared.process.process import _metrics_host
from pagewire_shared.rpc import links
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.rpc.server import start_server
from pagewire_worker.config import WorkerConfig
from support.security.certificates import links_of

SCHEDULER, STORE = SchedulerConfig(), KvStoreConfig()
WORKER = WorkerConfig(model="m")
FRONTEND = FrontendConfig(scheduler=("127.0.0.1:8100",))


def test_defaults_listen_on_loopback_only() -> None:
    for config in (SCHEDULER, STORE):
        assert parse_address(config.listen, setting="--listen").is_local
    assert WORKER.listen is None
    assert FRONTEND.http_address.is_local
    assert FRONTEND.grpc_address.is_local
    assert FRONTEND.peer_address is None
    assert Address(ServeConfig().host, 1).is_local


def test_metrics_are_shown_where_the_role_listens() -> None:
    for config in (SCHEDULER, STORE, WORKER, FRONTEND):
        assert _metrics_host(config) == "127.0.0.1"
        assert _metrics_host(replace(config, metrics_host="::1")) == "::1"
    for config in (SCHEDULER, STORE, WORKER):
        assert _metrics_host(replace(config, listen="10.0.0.7:99")) == "10.0.0.7"
        assert _metrics_host(replace(config, listen="unix:/tmp/x")) == "127.0.0.1"
    assert _metrics_host(replace(FRONTEND, host="10.0.0.7")) == "10.0.0.7"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_addresses(host: str) -> None:
    assert Address(host, 1).is_local


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "scheduler", "localhost.example"])
def test_other_addresses(host: str) -> None:
    assert not Address(host, 1).is_local


@pytest.mark.parametrize("is_public", [False, True])
async def test_an_open_internal_port_is_logged_once(
    caplog: pytest.LogCaptureFixture, is_public: bool
) -> None:
    # Without opening one here.
    with mock.patch.object(Address, "is_local", new=False), links_of(None, insecure=True):
        server = await start_server(
            Address("127.0.0.1", 0),
            lambda _: None,
            [],
            setting="--listen",
            public=links.NO_GUARD if is_public else None,
        )
        await server.stop(0)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == (0 if is_public else 1)
    assert all("--listen 127.0.0.1:0 is open" in record.getMessage() for record in warnings)
    if not is_public:
        assert links.open_ports().labels("--listen")._value.get() == 1


async def test_a_local_port_is_not_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    for address in (Address("127.0.0.1", 0), Address(path=str(tmp_path / "socket"))):
        server = await start_server(address, lambda _: None, [], setting="--listen")
        await server.stop(0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
