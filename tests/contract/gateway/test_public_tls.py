"""TLS of the public ports: HTTP and gRPC with one certificate, streams, new files, and bounds of
connections that do not complete their handshake."""

import asyncio
import logging
import socket
import ssl
import time

import httpx
import pytest
import uvloop
from contract.frontend_gateway import WAIT_SECONDS, post
from contract.frontend_peers import attached_frontend

from pagewire.cli.certs.authority import Authority
from pagewire.client.client import AsyncClient
from pagewire.client.endpoint import grpc_address, http_url
from pagewire_frontend.http.server import tls_gate
from pagewire_shared.errors import StartupError, UnavailableError
from pagewire_shared.security.roles import LinkRole

HOSTS = ("localhost", "127.0.0.1")


@pytest.fixture
def authority(tmp_path):
    return Authority.create(tmp_path / "ca", "cell", 10.0)


@pytest.fixture
def certificate(tmp_path, authority):
    authority.issue_public(tmp_path / "public", HOSTS, days=1.0)
    return tmp_path / "public"


def tls_flags(folder, **others):
    names = {"ssl_certfile": folder / "tls.crt", "ssl_keyfile": folder / "tls.key"}
    return {**{name: str(path) for name, path in names.items()}, **others}


def trusting(folder, **options):
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    return context, httpx.AsyncClient(verify=context, timeout=WAIT_SECONDS, **options)


async def test_http_and_grpc_speak_tls_and_nothing_else(checkpoint, certificate, monkeypatch):
    monkeypatch.setenv("PAGEWIRE_SERVER_CA", str(certificate / "ca.crt"))
    _, client = trusting(certificate)
    async with (
        attached_frontend(checkpoint, **tls_flags(certificate)) as (frontend, attach),
        client,
    ):
        await frontend.status.wait("ready")
        url = f"https://127.0.0.1:{frontend.port}"
        call = post(client, f"{url}/v1/completions", {"prompt": "x"})
        attach.say(await attach.next("submit"), "words")
        answer = await call
        assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
        body = {"prompt": "x", "stream": True}
        call = post(client, f"{url}/v1/completions", body)
        attach.say(await attach.next("submit"), "words")
        assert (await call).text.endswith("data: [DONE]\n\n")
        address = await asyncio.to_thread(grpc_address, url)
        assert address == f"https://{frontend.address}"
        assert await asyncio.to_thread(grpc_address, address) == address, "the port is its own"
        assert http_url(url) == url
        async with AsyncClient(address, timeout_seconds=WAIT_SECONDS) as grpc_client:
            assert [one.name for one in await grpc_client.list_models()] == ["tiny"]
        async with AsyncClient(frontend.address, timeout_seconds=2.0) as plain:
            with pytest.raises(UnavailableError):
                await plain.list_models()
        async with httpx.AsyncClient() as stranger:
            with pytest.raises(httpx.TransportError):
                await stranger.get(f"http://127.0.0.1:{frontend.port}/health")
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                await stranger.get(f"{url}/health")


async def test_what_comes_with_the_end_of_the_handshake_is_read(checkpoint, certificate):
    """One write holds the end of the handshake, two requests and a malformed one."""
    context, client = trusting(certificate)
    await client.aclose()
    async with attached_frontend(checkpoint, **tls_flags(certificate)) as (frontend, _):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", frontend.port)
        is_done = False
        while not is_done:
            try:
                tls.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await asyncio.wait_for(reader.read(65536), WAIT_SECONDS))
        request = b"GET /live HTTP/1.1\r\nHost: x\r\n\r\n"
        tls.write(request + request + b"broken\r\n\r\n")
        writer.write(outgoing.read())
        answer = b""
        while answer.count(b"HTTP/1.1 ") < 3:
            incoming.write(await asyncio.wait_for(reader.read(65536), WAIT_SECONDS))
            try:
                answer += tls.read(65536)
            except ssl.SSLWantReadError:
                continue
        assert answer.count(b"200 OK") == 2
        assert b"400 Bad Request" in answer
        writer.close()


async def test_new_files_are_taken_up_and_open_connections_go_on(
    checkpoint, certificate, authority
):
    context, client = trusting(certificate)
    async with (
        attached_frontend(checkpoint, **tls_flags(certificate)) as (frontend, attach),
        client,
    ):
        await frontend.status.wait("ready")
        url = f"https://localhost:{frontend.port}"

        def seen():
            with (
                socket.create_connection(("localhost", frontend.port)) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as tls,
            ):
                return tls.getpeercert()["serialNumber"]

        before = await asyncio.to_thread(seen)
        call = post(client, f"{url}/v1/completions", {"prompt": "x"})
        submit = await attach.next("submit")
        authority.issue_public(certificate, HOSTS, days=1.0)
        assert await asyncio.to_thread(seen) != before
        (certificate / "tls.key").write_text("broken")
        after = await asyncio.to_thread(seen)
        assert after != before, "the one before is used"
        attach.say(submit, "words")
        assert (await call).status_code == 200


async def test_clients_without_a_certificate_are_refused(
    checkpoint, certificate, authority, tmp_path
):
    flags = tls_flags(certificate, ssl_ca_certs=str(certificate / "ca.crt"), ssl_cert_reqs=2)
    context, client = trusting(certificate)
    own = tmp_path / "client"
    authority.issue(own, LinkRole.OPERATOR, cell="cell", instance="1", days=1.0)
    async with attached_frontend(checkpoint, **flags) as (frontend, _), client:
        url = f"https://localhost:{frontend.port}/live"
        with pytest.raises(httpx.TransportError):
            await client.get(url)
        context.load_cert_chain(own / "tls.crt", own / "tls.key")
        async with httpx.AsyncClient(verify=context) as known:
            assert (await known.get(url)).status_code == 200


async def test_handshakes_that_do_not_end_are_bounded(checkpoint, certificate, monkeypatch):
    monkeypatch.setattr(tls_gate, "MAX_HANDSHAKES", 3)
    flags = tls_flags(certificate, head_seconds=1.0)
    _, client = trusting(certificate)
    async with attached_frontend(checkpoint, **flags) as (frontend, _), client:
        silent = [await asyncio.open_connection("127.0.0.1", frontend.port) for _ in range(3)]
        url = f"https://localhost:{frontend.port}/live"
        await asyncio.sleep(0.1)
        with pytest.raises(httpx.TransportError):
            await client.get(url)
        began_at = time.monotonic()
        for reader, writer in silent:
            assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
            writer.close()
        assert time.monotonic() - began_at < 5.0
        assert (await client.get(url)).status_code == 200


async def test_a_client_that_reads_nothing_is_cut(checkpoint, certificate, caplog):
    caplog.set_level(logging.INFO)
    flags = tls_flags(certificate, stall_seconds=1.0)
    context, client = trusting(certificate)
    async with attached_frontend(checkpoint, **flags) as (frontend, _), client:
        request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 30
        reader = await asyncio.to_thread(asked_without_reading, context, frontend.port, request)
        async with asyncio.timeout(WAIT_SECONDS):
            while "took nothing for 1 s" not in caplog.text:
                await asyncio.sleep(0.1)
        assert (await client.get(f"https://localhost:{frontend.port}/live")).status_code == 200
        reader.close()


def asked_without_reading(context, port, request):
    """Send a request, and leave little room for the answer."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
    plain.connect(("127.0.0.1", port))
    encrypted = context.wrap_socket(plain, server_hostname="localhost")
    encrypted.sendall(request)
    return encrypted


def answers(context, port, count):
    """Connect anew for each of some requests; return the statuses, None where there is none."""
    found = []
    for _ in range(count):
        try:
            with (
                socket.create_connection(("127.0.0.1", port), 5.0) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as encrypted,
            ):
                encrypted.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                found.append(encrypted.recv(12))
        except OSError as error:
            found.append(error)
    return found


def test_on_the_event_loop_that_roles_run(checkpoint, certificate, monkeypatch):
    """uvloop has TLS of its own. Clients that are quick, and ones that never say anything."""
    monkeypatch.setattr(tls_gate, "MAX_HANDSHAKES", 3)
    context, _ = trusting(certificate)

    async def main():
        flags = tls_flags(certificate, head_seconds=1.0)
        async with attached_frontend(checkpoint, **flags) as (frontend, _):
            port = frontend.port
            found = await asyncio.to_thread(answers, context, port, 30)
            assert found == [b"HTTP/1.1 200"] * 30
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            await asyncio.sleep(0.1)
            (refused,) = await asyncio.to_thread(answers, context, port, 1)
            assert isinstance(refused, OSError)
            for reader, writer in silent:
                assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
                writer.close()
            assert await asyncio.to_thread(answers, context, port, 1) == [b"HTTP/1.1 200"]

    uvloop.run(main())


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"ssl_keyfile": "key"}, "--ssl-keyfile needs --ssl-certfile"),
        ({"ssl_certfile": "missing"}, "--ssl-certfile: missing cannot be read"),
        ({"ssl_certfile": "c", "ssl_cert_reqs": 2}, "--ssl-cert-reqs needs --ssl-ca-certs"),
        ({"ssl_certfile": "c", "ssl_cert_reqs": 3}, "must be 0, 1 or 2"),
    ],
)
async def test_flags_that_make_no_sense_end_the_start(checkpoint, flags, told):
    with pytest.raises(StartupError, match=told):
        async with attached_frontend(checkpoint, **flags):
            pass
