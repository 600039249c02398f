"""The connection itself on a real socket: malformed, oversized, slow and pipelined HTTP."""

import asyncio
import json

import pytest
from contract.frontend_gateway import gateway, post

from support.traffic.raw_http import connect, request

COMPLETION = json.dumps({"prompt": "x"}).encode()
POST = ("POST", "/v1/completions")
MALFORMED = {
    "garbage": b"\x00\xff\x17garbage\r\n\r\n",
    "tls": bytes.fromhex("160301020001000001fc0303") + bytes(64),
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no method": b"/version HTTP/1.1\r\nHost: x\r\n\r\n",
    "connect": b"CONNECT test:80 HTTP/1.1\r\nHost: test:80\r\n\r\n",
    "no version": b"GET /version\r\nHost: x\r\n\r\n",
    "odd version": b"GET /version HTTP/9.9\r\nHost: x\r\n\r\n",
    "no host": b"GET /version HTTP/1.1\r\n\r\n",
    "two hosts": request("GET", "/version", "Host: other"),
    "blank in name": request("GET", "/version", "X-A : b"),
    "bare name": request("GET", "/version", "X-A"),
    "folded": b"GET /version HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
    "nul in value": request("GET", "/version", "X-A: a\0b"),
    "bare line feeds": b"GET /version HTTP/1.1\nHost: x\n\n",
    "bytes in target": b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": request(*POST, "Content-Length: 14", "Content-Length: 3", body=COMPLETION),
    "length list": request(*POST, "Content-Length: 14, 15", body=COMPLETION),
    "length and chunked": request(
        *POST, "Content-Length: 4", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"
    ),
    "chunked and length": request(
        *POST, "Transfer-Encoding: chunked", "Content-Length: 4", body=b"0\r\n\r\n"
    ),
    "chunked twice over": request(*POST, "Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"),
    "odd coding": request(*POST, "Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "negative length": request(*POST, "Content-Length: -1", body=b"x"),
    "signed length": request(*POST, "Content-Length: +14", body=COMPLETION),
    "hex length": request(*POST, "Content-Length: 0xe", body=COMPLETION),
    "huge length": request(*POST, "Content-Length: " + "9" * 40, body=COMPLETION),
    "bad chunk size": request(*POST, "Transfer-Encoding: chunked", body=b"zz\r\nx\r\n0\r\n\r\n"),
    "huge chunk size": request(
        *POST, "Transfer-Encoding: chunked", body=b"f" * 40 + b"\r\nx\r\n0\r\n\r\n"
    ),
    "chunk without end": request(
        *POST, "Transfer-Encoding: chunked", body=b"1\r\nxyz\r\n0\r\n\r\n"
    ),
}


@pytest.fixture
async def served(checkpoint):
    """A frontend with small limits, beside which one stream goes on all the time."""
    settings = {
        "max_header_bytes": 4096,
        "max_header_count": 20,
        "max_target_bytes": 1024,
        "head_seconds": 0.5,
        "body_idle_seconds": 0.5,
        "body_seconds": 1.5,
        "keep_alive_seconds": 1,
    }
    async with gateway(checkpoint, **settings) as (client, attach, frontend):
        body = {"prompt": "x", "stream": True, "max_tokens": 50}
        neighbour = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        attach.tokens(submit, 0, [40])
        yield frontend, attach
        attach.tokens(submit, 1, [41])
        attach.finish(submit, 2)
        answer = await neighbour
        assert answer.status_code == 200
        assert answer.text.endswith("data: [DONE]\n\n")
        assert '"error"' not in answer.text


async def exchange(frontend, data):
    """Return the answer to `data` and whether the connection ended after it."""
    client = await connect(frontend.port)
    await client.send(data)
    response = await client.response()
    is_closed = await client.is_closed()
    await client.close()
    return response, is_closed


async def test_malformed_http_is_a_400_in_our_words_and_ends_the_connection(served):
    frontend, _ = served
    answers = {name: await exchange(frontend, data) for name, data in MALFORMED.items()}
    got = {name: (response.status, is_closed) for name, (response, is_closed) in answers.items()}
    assert got == dict.fromkeys(MALFORMED, (400, True))
    for name, (response, _) in answers.items():
        assert response.error["type"] == "invalid_request_error"
        assert response.error["code"] == "invalid_http", name
        assert response.headers["connection"] == "close"
        assert response.headers["x-request-id"]


async def test_the_request_id_is_echoed_where_it_came_before_the_fault(served):
    frontend, _ = served
    response, _ = await exchange(
        frontend, request("GET", "/", "X-Request-Id: abc", "X-A: b", "X A: b")
    )
    assert (response.status, response.headers["x-request-id"]) == (400, "abc")


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (request("GET", "/?" + "x" * 1023), 414, "target_too_long"),
        (b"GET /" + b"x" * 5000, 414, "target_too_long"),
        (request("GET", "/version", "X-A: " + "b" * 4096), 431, "headers_too_large"),
        (request("GET", "/version", *["X-A: b"] * 20), 431, "headers_too_large"),
        (request("GET", "/version")[:-2] + b"X-A: " + b"b" * 10_000_000, 431, "headers_too_large"),
        (request("GET", "/version")[:-2] + b"b" * 10_000_000, 431, "headers_too_large"),
    ],
)
async def test_oversized_heads_are_refused(served, data, status, code):
    frontend, _ = served
    response, is_closed = await exchange(frontend, data)
    assert (response.status, response.error["code"], is_closed) == (status, code, True)


async def test_the_largest_heads_are_taken(served):
    frontend, _ = served
    for data in (
        request("GET", "/version?" + "x" * (1024 - 9), "Connection: close"),
        request("GET", "/version", "Connection: close", *["X-A: b"] * 18),
        request("GET", "/version", "Connection: close", "X-A: " + "b" * 4000),
    ):
        response, _ = await exchange(frontend, data)
        assert response.status == 200


async def drip(client, data):
    """Send a byte at a time until the server has closed."""
    for byte in data:
        await client.send(bytes([byte]))
        await asyncio.sleep(0.1)
        if client.reader.at_eof():
            return


@pytest.mark.parametrize(
    "data", [b"GET ", request("GET", "/version", "X-A: " + "b" * 100), b"\r\n" * 40]
)
async def test_slow_headers_end_in_time(served, data):
    frontend, _ = served
    client = await connect(frontend.port)
    sending = asyncio.create_task(drip(client, data))
    if data.startswith(b"GET"):
        response = await client.response()
        assert (response.status, response.error["code"]) == (408, "request_timeout")
    assert await client.is_closed()
    sending.cancel()
    await client.close()


async def test_a_connection_that_says_nothing_ends(served):
    frontend, _ = served
    client = await connect(frontend.port)
    assert await client.is_closed()
    await client.close()


@pytest.mark.parametrize("is_dripping", [False, True])
async def test_slow_bodies_end_in_time(served, is_dripping):
    frontend, _ = served
    client = await connect(frontend.port)
    await client.send(request(*POST, "Content-Length: 1000") + b"{")
    sending = asyncio.create_task(drip(client, b" " * 900 if is_dripping else b""))
    response = await client.response()
    assert (response.status, response.error["code"]) == (408, "request_timeout")
    assert await client.is_closed()
    sending.cancel()
    await client.close()


async def test_an_idle_connection_is_closed_after_a_request(served):
    frontend, _ = served
    client = await connect(frontend.port)
    for _ in range(2):
        await client.send(request())
        assert (await client.response()).status == 200
    assert await client.is_closed()
    await client.close()


async def test_pipelined_requests_are_answered_in_order(served):
    frontend, _ = served
    client = await connect(frontend.port)
    paths = ["/version", "/nothing", "/live", "/v1/models"]
    await client.send(b"".join(request("GET", path) for path in paths))
    responses = [await client.response() for _ in paths]
    assert [response.status for response in responses] == [200, 404, 200, 200]
    assert b"version" in responses[0].body
    await client.close()


async def test_too_many_pipelined_requests_end_behind_those_before(served):
    frontend, _ = served
    client = await connect(frontend.port)
    await client.send(request() * 200)
    statuses = []
    while not statuses or statuses[-1] == 200:
        statuses.append((await client.response()).status)
    assert statuses == [200] * 33 + [400]
    assert await client.is_closed()
    await client.close()


async def test_garbage_behind_a_stream_leaves_the_stream_whole(served):
    frontend, attach = served
    client = await connect(frontend.port)
    body = json.dumps({"prompt": "y", "stream": True, "max_tokens": 9}).encode()
    await client.send(request(*POST, body=body) + b"\x00garbage")
    submit = await attach.next("submit")
    attach.say(submit, "whole")
    stream = await client.response()
    assert stream.status == 200
    assert stream.body.endswith(b"data: [DONE]\n\n")
    refused = await client.response()
    assert (refused.status, refused.error["code"]) == (400, "invalid_http")
    assert await client.is_closed()
    await client.close()


async def test_a_client_that_leaves_with_a_request_waiting_frees_the_one_before(served):
    frontend, attach = served
    client = await connect(frontend.port)
    body = json.dumps({"prompt": "y", "stream": True, "max_tokens": 9}).encode()
    await client.send(request(*POST, body=body) + request())
    submit = await attach.next("submit")
    client.writer.transport.abort()
    # Reading is paused while a request waits: the end shows with the next writes.
    for position in range(8):
        attach.tokens(submit, position, [40])
        await asyncio.sleep(0.02)
    assert (await attach.next("abort")).handle == submit.handle


async def test_an_offer_to_upgrade_is_declined_and_the_request_answered(served):
    frontend, attach = served
    client = await connect(frontend.port)
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    await client.send(request(*POST, *offer, body=COMPLETION) + request())
    attach.say(await attach.next("submit"), "yes")
    response = await client.response()
    assert (response.status, json.loads(response.body)["choices"][0]["text"]) == (200, "yes")
    assert (await client.response()).status == 200
    await client.close()


async def test_connections_above_the_limit_get_503(checkpoint):
    async with gateway(checkpoint, max_connections=3) as (_, _, frontend):
        clients = [await connect(frontend.port) for _ in range(3)]
        # Idle ones would make room; of these a body is awaited.
        head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"
        for client in clients:
            await client.send(head)
        await asyncio.sleep(0.1)
        refused, is_closed = await exchange(frontend, request())
        assert (refused.status, refused.error["code"]) == (503, "too_many_connections")
        assert refused.headers["retry-after"] == "1"
        assert is_closed
        alive, _ = await exchange(frontend, request("GET", "/live", "Connection: close"))
        assert alive.status == 200
        await clients[0].close()
        await asyncio.sleep(0.1)
        again, _ = await exchange(frontend, request("GET", "/version", "Connection: close"))
        assert again.status == 200
        for client in clients:
            await client.close()
