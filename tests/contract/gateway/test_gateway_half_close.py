"""A client that sends no more and waits, and one that has gone: both end what they send."""

import asyncio
import json

import pytest
from contract.frontend_gateway import gateway
from contract.frontend_peers import WAIT_SECONDS

from support.traffic.raw_http import connect, request

BODY = json.dumps({"prompt": "x", "max_tokens": 4}).encode()
STREAM = json.dumps({"prompt": "x", "max_tokens": 4, "stream": True}).encode()


def asked(body):
    return request("POST", "/v1/completions", "Content-Type: application/json", body=body)


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_who_sends_no_more_gets_the_answer_and_then_the_end(checkpoint, body):
    async with gateway(checkpoint) as (_, attach, frontend):
        client = await connect(frontend.port)
        reader, writer = client.reader, client.writer
        writer.write(asked(body))
        writer.write_eof()
        submit = await attach.next("submit")
        # Longer than it takes to ask a client that is silent whether it is there.
        await asyncio.sleep(1.2)
        attach.tokens(submit, 0, [40, 41])
        attach.finish(submit, 2)
        answer = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
        writer.close()
    *interim, final = answer.split(b"HTTP/1.1 ")[1:]
    assert set(interim) <= {b"100 Continue\r\n\r\n"}
    assert final.startswith(b"200 OK")
    assert b"completion_tokens" in final if body is BODY else final.count(b"data:") >= 2


async def test_answers_to_pipelined_requests_come_before_the_end(checkpoint):
    async with gateway(checkpoint) as (_, _, frontend):
        client = await connect(frontend.port)
        reader, writer = client.reader, client.writer
        writer.write(request("GET", "/version") * 3)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), WAIT_SECONDS)
        writer.close()
    assert answer.count(b" 200 OK\r\n") == 3


async def test_half_a_request_gets_no_answer(checkpoint):
    async with gateway(checkpoint) as (_, _, frontend):
        client = await connect(frontend.port)
        reader, writer = client.reader, client.writer
        writer.write(asked(BODY)[:-5])
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), WAIT_SECONDS) == b""
        writer.close()


async def test_the_request_of_a_client_that_has_gone_is_given_up(checkpoint):
    async with gateway(checkpoint) as (_, attach, frontend):
        writer = (await connect(frontend.port)).writer
        writer.write(asked(BODY))
        await attach.next("submit")
        writer.close()
        await asyncio.wait_for(attach.next("abort"), WAIT_SECONDS)
