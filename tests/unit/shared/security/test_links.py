"""Links between roles with real certificates, servers and channels."""

import asyncio
import datetime
import logging
import subprocess
import sys
from pathlib import Path
from unittest import mock

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from pagewire.cli.certs.authority import Authority, facts_of
from pagewire_shared.errors import StartupError
from pagewire_shared.rpc import links
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.rpc.server import start_server
from pagewire_shared.security.roles import LinkRole
from pagewire_shared.security.tls_files import TlsPaths, read_files
from support.security.certificates import channel_with, links_of, make_certificates

HERE = Address("127.0.0.1", 0)
SECONDS = 5.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "cell")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an authority with the same name."""
    return make_certificates(tmp_path_factory.mktemp("certificates") / "other")


async def outcome(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """Return how a check of the health ends."""
    async with channel:
        try:
            request = health_pb2.HealthCheckRequest()
            await health_pb2_grpc.HealthStub(channel).Check(request, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            return error.code()
    return grpc.StatusCode.OK


async def reflected(channel: grpc.aio.Channel) -> str:
    """Return how a list of the services ends, with its details."""
    async with channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = [reflection_pb2.ServerReflectionRequest(list_services="")]
        try:
            async for _ in stub.ServerReflectionInfo(iter(asked), timeout=SECONDS):
                return "OK"
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
    return "empty"


async def test_who_is_let_in(certificates: Path, strangers: Path, tmp_path: Path) -> None:
    expired = tmp_path / "expired"
    Authority.load(certificates).issue(
        expired, LinkRole.WORKER, cell="default", instance="1", days=-0.001
    )
    with links_of(certificates / LinkRole.SCHEDULER):
        server = await start_server(HERE, lambda _: None, [], setting="--listen")
    try:
        target, codes = str(server.address), {}
        for name, folder in {
            "right": certificates / LinkRole.WORKER,
            "none": None,
            "other authority": strangers / LinkRole.WORKER,
            "expired": expired,
        }.items():
            codes[name] = await outcome(channel_with(target, folder, certificates))
        codes["plain"] = await outcome(grpc.aio.insecure_channel(target))
        away = grpc.StatusCode.UNAVAILABLE
        assert codes == {
            "right": grpc.StatusCode.OK,
            **dict.fromkeys(("none", "other authority", "expired", "plain"), away),
        }
    finally:
        await server.stop(0)


async def test_calls_of_other_roles_are_refused(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with links_of(certificates / LinkRole.SCHEDULER):
        server = await start_server(HERE, lambda _: None, [], setting="--listen")
    target = str(server.address)
    operator = channel_with(target, certificates / LinkRole.OPERATOR, certificates)
    worker = channel_with(target, certificates / LinkRole.WORKER, certificates)
    assert await reflected(operator) == "OK"
    refused = await reflected(worker)
    assert refused.startswith("PERMISSION_DENIED: /grpc.reflection.v1alpha.ServerReflection/")
    assert "may not be called by worker (spiffe://default/worker/1)" in refused
    assert "refused /grpc.reflection" in caplog.text
    await server.stop(0)


async def test_a_server_of_another_role_is_not_believed(certificates: Path) -> None:
    """A stolen certificate of a worker does not make a scheduler."""
    with links_of(certificates / LinkRole.WORKER):
        server = await start_server(HERE, lambda _: None, [], setting="--listen")
        options = control_channel_options()
        found = [
            await outcome(links.open_channel(server.address, role, options))
            for role in (LinkRole.WORKER, None, LinkRole.SCHEDULER)
        ]
        await server.stop(0)
    ok, away = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE
    assert found == [ok, ok, away]


async def test_a_server_of_another_instance_is_not_believed(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path, "c", 10.0)
    names = {"cell": "c", "instance": "w-1", "days": 1.0}
    authority.issue(tmp_path / "w", LinkRole.WORKER, is_bound=True, **names)
    with links_of(tmp_path / "w"):
        assert links.own_instance(LinkRole.WORKER) == "w-1"
        assert links.own_instance(LinkRole.FRONTEND) == ""
        server = await start_server(HERE, lambda _: None, [], setting="--listen")
        options = control_channel_options()
        found = [
            await outcome(
                links.open_channel(server.address, LinkRole.WORKER, options, instance=instance)
            )
            for instance in ("", "W-1", "w-2")
        ]
        await server.stop(0)
    assert found == [grpc.StatusCode.OK, grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE]


async def test_unix_sockets_have_no_tls(certificates: Path, tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "socket"))
    with links_of(certificates / LinkRole.WORKER):
        server = await start_server(address, lambda _: None, [], setting="--listen")
        channel = links.open_channel(address, LinkRole.SCHEDULER, control_channel_options())
        assert await outcome(channel) == grpc.StatusCode.OK
        await server.stop(0)


async def test_certificates_are_taken_up_while_calls_go_on(
    certificates: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    own, authority = tmp_path / "own", Authority.load(certificates)
    names = {"cell": "default", "instance": "1", "days": 1.0}
    authority.issue(own, LinkRole.SCHEDULER, **names)
    with links_of(own):
        server = await start_server(HERE, lambda _: None, [], setting="--listen")
        target = str(server.address)
        kept = links.open_channel(server.address, LinkRole.SCHEDULER, control_channel_options())
        watch = health_pb2_grpc.HealthStub(kept).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status
        before = read_files(TlsPaths.in_folder(own))
        for _ in range(20):
            authority.issue(own, LinkRole.SCHEDULER, **names)
            fresh = channel_with(target, certificates / LinkRole.WORKER, certificates)
            assert await outcome(fresh) == grpc.StatusCode.OK
        assert read_files(TlsPaths.in_folder(own)) != before
        # A broken file is not taken.
        (own / "tls.crt").write_text("no certificate")
        fresh = channel_with(target, certificates / LinkRole.WORKER, certificates)
        assert await outcome(fresh) == grpc.StatusCode.OK
        assert "the certificate before is used: --tls-dir: " in caplog.text
        # The watch of the first connection has been there all the time.
        await server.set_serving(True)
        assert (await asyncio.wait_for(watch.read(), SECONDS)).status == 1
        watch.cancel()
        await kept.close()
        await server.stop(0)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("tls.key", None, "tls.key cannot be read"),
        ("ca.crt", "", "are no certificate, its key and its authority"),
        ("tls.crt", "x" * 2**20 + "y", "tls.crt is too large"),
        ("tls.key", "other", "are no certificate, its key and its authority"),
    ],
)
def test_files_that_cannot_be_used(
    file: str, content: str | None, message: str, tmp_path: Path
) -> None:
    folder = (
        make_certificates(tmp_path / "cell", [LinkRole.WORKER, LinkRole.FRONTEND]) / LinkRole.WORKER
    )
    if content is None:
        (folder / file).unlink()
    elif content == "other":
        (folder / file).write_bytes((tmp_path / "cell" / LinkRole.FRONTEND / file).read_bytes())
    else:
        (folder / file).write_text(content)
    with pytest.raises(StartupError, match=message), links_of(folder):
        pass


async def test_an_address_that_others_reach_needs_certificates(certificates: Path) -> None:
    async def start() -> None:
        with mock.patch.object(Address, "is_local", new=False):
            server = await start_server(HERE, lambda _: None, [], setting="--listen")
        await server.stop(0)

    with pytest.raises(StartupError, match="is reached by other machines"):
        await start()
    with links_of(None, insecure=True):
        await start()
    with links_of(certificates / LinkRole.WORKER):
        await start()


def test_commands(tmp_path: Path) -> None:
    """init, show, rotate, issue, and what they refuse."""

    def certs(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "pagewire", "certs", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    root = tmp_path / "cell"
    assert certs("init", str(root), "--days", "30")[0] == 0
    assert (root / "ca.key").stat().st_mode & 0o777 == 0o600
    assert (root / "worker" / "tls.key").stat().st_mode & 0o777 == 0o600
    assert not (root / "worker" / "ca.key").exists()
    assert certs("init", str(root))[1].endswith("has an authority already: ca.key\n")
    assert certs("show", str(root))[0] == 0
    assert certs("show", str(root), "--soon", "31")[0] == 1
    assert certs("issue", str(root), "worker", "--instance", "w-2")[0] == 0
    status, said = certs("rotate", str(root), "--days", "60")
    assert (status, said.count("renewed")) == (0, 6)
    facts = facts_of(root / "worker-w-2")
    assert (facts.role, facts.name) == ("worker", "spiffe://default/worker/w-2")
    assert facts.instance == "w-2"  # still, after it was renewed
    assert "worker w-2 alone" in certs("show", str(root))[1]
    assert 59 < facts.days_left(datetime.datetime.now(datetime.UTC)) < 61
    assert "invalid choice" in certs("issue", str(root), "king")[1]
    assert "has no authority" in certs("issue", str(tmp_path), "worker")[1]
    assert "has no certificates of roles" in certs("show", str(tmp_path / "nothing"))[1]
