"""Long texts: refused before they are tokenized where they cannot fit, bounded while they wait, and
never more requests open than are allowed."""

import asyncio
import threading

import grpc.aio
import pytest
from contract.frontend_gateway import gateway

from pagewire_frontend.models.tokenizer import TextTokenizer
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.rpc.errors import from_rpc_error

CONTEXT = 512
TOO_LONG = "word " * 4000
BODIES = {
    "/v1/completions": ("prompt", {"prompt": TOO_LONG}),
    "/v1/chat/completions": ("messages", {"messages": [{"role": "user", "content": TOO_LONG}]}),
    "/v1/embeddings": ("input", {"input": TOO_LONG}),
    "/v1/responses": ("input", {"input": TOO_LONG}),
}


@pytest.fixture
def encoded(monkeypatch):
    """Lengths of the texts that were tokenized."""
    lengths = []
    encode = TextTokenizer.encode

    def counting(self, text, **options):
        lengths.append(len(text))
        return encode(self, text, **options)

    monkeypatch.setattr(TextTokenizer, "encode", counting)
    return lengths


@pytest.mark.parametrize("path", sorted(BODIES))
async def test_a_text_that_cannot_fit_is_not_tokenized(checkpoint, encoded, path):
    field, body = BODIES[path]
    async with gateway(checkpoint) as (client, _, _):
        refused = await client.post(path, json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "context_length_exceeded")
    assert error["param"] == field
    assert f"maximum context length is {CONTEXT} tokens" in error["message"]
    assert max(encoded, default=0) < len(TOO_LONG)


async def test_nor_over_grpc(checkpoint, encoded):
    async with gateway(checkpoint) as (_, _, frontend):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in frontend.stub.Complete(pb.CompleteRequest(text=TOO_LONG)):
                pass
    assert from_rpc_error(caught.value).code == "context_length_exceeded"
    assert max(encoded, default=0) < len(TOO_LONG)


async def test_a_text_that_will_be_cut_is_tokenized(checkpoint, encoded):
    body = {"prompt": TOO_LONG, "truncate_prompt_tokens": 8, "max_tokens": 4}
    async with gateway(checkpoint) as (client, attach, _):
        call = asyncio.create_task(client.post("/v1/completions", json=body))
        submit = await attach.next("submit")
        attach.say(submit, "yes")
        assert (await call).status_code == 200
    assert max(encoded) == len(TOO_LONG)


async def test_requests_count_as_open_while_their_texts_are_tokenized(checkpoint, monkeypatch):
    allowed, asked, may_go_on = 4, 40, threading.Event()
    encode = TextTokenizer.encode

    def waiting(self, text, **options):
        assert may_go_on.wait(20)
        return encode(self, text, **options)

    monkeypatch.setattr(TextTokenizer, "encode", waiting)
    body = {"prompt": TOO_LONG, "truncate_prompt_tokens": 8, "max_tokens": 1}
    async with gateway(checkpoint, max_open_requests=allowed) as (client, attach, _):
        calls = [
            asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(asked)
        ]
        try:
            async with asyncio.timeout(10):
                while sum(call.done() for call in calls) < asked - allowed:
                    await asyncio.sleep(0.01)
        finally:
            may_go_on.set()
        for _ in range(allowed):
            attach.say(await attach.next("submit"), "y")
        answers = [await call for call in calls]
        statuses = [answer.status_code for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (allowed, asked - allowed)
        # Every ticket came back.
        for _ in range(allowed):
            call = asyncio.create_task(client.post("/v1/completions", json=body))
            attach.say(await attach.next("submit"), "y")
            assert (await call).status_code == 200


async def test_every_way_out_gives_the_ticket_back(checkpoint):
    async with gateway(checkpoint, max_open_requests=1) as (client, attach, _):
        for wrong in (
            {"prompt": TOO_LONG},
            {"prompt": "x", "max_tokens": 100_000},
            {"prompt": ""},
            {"prompt": [9_999]},
            {"prompt": "x", "logit_bias": {"9999": 1}},
            {"prompt": "x", "guided_regex": "("},
        ):
            assert (await client.post("/v1/completions", json=wrong)).status_code == 400
        call = asyncio.create_task(client.post("/v1/completions", json={"prompt": "x"}))
        submit = await attach.next("submit")
        refused = await client.post("/v1/completions", json={"prompt": "y"})
        assert refused.status_code == 429
        call.cancel()
        assert (await attach.next("abort")).handle == submit.handle
        answer = asyncio.create_task(client.post("/v1/completions", json={"prompt": "z"}))
        attach.say(await attach.next("submit"), "y")
        assert (await answer).status_code == 200
