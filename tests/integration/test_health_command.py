"""`pagewire health` against real servers: 0 for what serves, one line and 1 for the rest."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from pagewire.cli import main
from support.processes.processes import free_port


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/live" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def http_url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def grpc_address() -> Iterator[str]:
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        service = health.HealthServicer()
        service.set("", health_pb2.HealthCheckResponse.SERVING)
        service.set("liveness", health_pb2.HealthCheckResponse.SERVING)
        service.set("readiness", health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        status = main(["health", *words])
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_what_serves_is_0(
    grpc_address: str, http_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(capsys, grpc_address) == (0, "SERVING\n", "")
    assert ask(capsys, grpc_address, "--service", "liveness") == (0, "SERVING\n", "")
    assert ask(capsys, f"{http_url}/live") == (0, "200 OK\n", "")


def test_no_proxy_is_asked(
    grpc_address: str,
    http_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("http_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert ask(capsys, grpc_address)[0] == 0
    assert ask(capsys, f"{http_url}/live")[0] == 0


def test_what_does_not_serve_is_one_line_and_1(
    grpc_address: str, http_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    for words, reason in [
        ([grpc_address, "--service", "readiness"], f"{grpc_address} (readiness) is NOT_SERVING"),
        ([grpc_address, "--service", "nix"], f"{grpc_address} knows no health of 'nix'"),
        ([nobody], f"{nobody} does not answer: UNAVAILABLE"),
        ([f"{http_url}/ready"], f"{http_url}/ready answers 503 Service Unavailable"),
        ([f"http://{nobody}/live"], f"http://{nobody}/live does not answer"),
        ([f"http://{grpc_address}/live"], f"http://{grpc_address}/live answers, but not in HTTP"),
        (["nowhere"], "ADDRESS: 'nowhere' is no address"),
    ]:
        status, out, error = ask(capsys, *words)
        assert (status, out, error.count("\n")) == (1, "", 1), words
        assert error.startswith(f"pagewire health: error: {reason}")


def test_misuse_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = ask(capsys, "http://127.0.0.1:1/live", "--service", "liveness")
    assert status == 2
    assert "--service is for gRPC" in error
    assert ask(capsys)[0] == 2
