"""The edge of a frontend that runs as in production: its own process, its own event loop."""

import asyncio

import pytest
from contract.frontend.test_frontend_process import finish, listening_event, start

from support.traffic.raw_http import connect, request

KEY = "sk-production-key"
FLAGS = (
    *("--port", "0", "--grpc-port", "0", "--log-level", "debug"),
    *("--head-seconds", "0.5", "--body-idle-seconds", "0.5", "--max-header-bytes", "4KiB"),
)
CASES = [
    (request("GET", "/live"), 200, None),
    (request("GET", "/health"), 503, "unavailable"),
    (request("GET", "/v1/models"), 401, "invalid_api_key"),
    (request("GET", "/v1/models", f"Authorization: Bearer {KEY}"), 200, None),
    (request("GET", "/nothing", f"Authorization: Bearer {KEY}"), 404, "not_found"),
    (b"\x00garbage\r\n\r\n", 400, "invalid_http"),
    (request("GET", "/live")[:-2] + b"X-A: " + b"b" * 10_000_000, 431, "headers_too_large"),
    (request("GET", "/" + "x" * 9000), 414, "target_too_long"),
    (request("GET", "/live")[:-2] + b"X-A", 408, "request_timeout"),
    (
        request("POST", "/tokenize", f"Authorization: Bearer {KEY}", "Content-Length: 9") + b"{",
        408,
        "request_timeout",
    ),
    (
        request("POST", "/tokenize", f"Authorization: Bearer {KEY}", body=b'{"prompt": "x"}'),
        200,
        None,
    ),
]


@pytest.fixture
def process(checkpoint, monkeypatch):
    monkeypatch.setenv("PAGEWIRE_API_KEY", KEY)
    started = start(checkpoint, *FLAGS)
    yield started
    if started.poll() is None:
        started.kill()
        finish(started)


async def test_a_process_answers_all_and_its_log_shows_no_key(process):
    port = int(listening_event(process)["http"].rpartition(":")[2])
    clients = [await connect(port) for _ in CASES]
    # All at once: no one waits for the slow.
    await asyncio.gather(*(c.send(case[0]) for c, case in zip(clients, CASES, strict=True)))
    answers = await asyncio.gather(*(client.response() for client in clients))
    for answer, (data, status, code) in zip(answers, CASES, strict=True):
        assert answer.status == status, (data[:60], answer)
        assert answer.headers["x-request-id"]
        assert code is None or answer.error["code"] == code
    for client in clients:
        await client.close()
    process.terminate()
    status, out, errors = finish(process)
    assert status == 0
    assert KEY not in out + errors
