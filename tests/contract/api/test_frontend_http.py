"""The HTTP gateway on a real socket: OpenAI's client, streams and disconnects."""

import asyncio
import json

import httpx
import openai
import pytest
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import (
    STOP,
    WAIT_SECONDS,
    ScriptedScheduler,
    ids_of,
    listening,
    running_frontend,
    served,
)

from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import InternalError, OverloadedError
from pagewire_shared.rpc.errors import to_detail


async def test_openai_chat(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "hi"}], seed=-1
            )
        )
        submit = await attach.next("submit")
        assert submit.sampling.seed == 2**64 - 1
        prompt_tokens = len(submit.prompt_token_ids) // 4
        assert submit.sampling.max_tokens == 512 - prompt_tokens
        attach.say(submit, "Hello!")
        answer = await call
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello!")
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 6
    assert answer.usage.prompt_tokens == prompt_tokens
    assert answer.usage.total_tokens == prompt_tokens + 6


async def test_openai_chat_stream(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
                stream=True,
                stream_options={"include_usage": True},
                max_completion_tokens=10,
            )
        )
        submit = await attach.next("submit")
        assert submit.sampling.max_tokens == 10
        attach.say(submit, "Grüße")
        chunks = [chunk async for chunk in await call]
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Grüße"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == "length"
    assert set(reasons[:-1]) == {None}
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == len("Grüße".encode())


async def test_completions_number_choices_prompt_by_prompt(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.completions.create(model="tiny", prompt=["a", "b"], n=2, max_tokens=5)
        )
        for _ in range(2):
            submit = await attach.next("submit")
            name = "a" if submit.prompt_token_ids[:1] == bytes([ids_of("a")[0]]) else "b"
            for choice in range(2):
                attach.tokens(submit, 0, ids_of(f"{name}{choice}"), choice=choice)
                attach.send(
                    finished=wire.FinishedChoices(
                        choices=[
                            wire.FinishedChoice(
                                handle=submit.handle, choice=choice, num_tokens=2, reason=STOP
                            )
                        ]
                    )
                )
        answer = await call
    assert [choice.text for choice in answer.choices] == ["a0", "a1", "b0", "b1"]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.completion_tokens == 8


async def test_completions_stream_several_prompts_of_ids(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.completions.create(model="tiny", prompt=[ids_of("a"), ids_of("b")], stream=True)
        )
        for _ in range(2):
            submit = await attach.next("submit")
            assert submit.sampling.max_tokens == 16
            attach.say(submit, "t")
        texts: dict[int, str] = {}
        async for chunk in await call:
            [choice] = chunk.choices
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == {0: "t", 1: "t"}


async def test_logprobs_in_both_shapes(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "x"}], logprobs=True
            )
        )
        submit = await attach.next("submit")
        assert submit.sampling.logprobs == 0
        attach.tokens(submit, 0, ids_of("é"), logprobs=[-0.5, -0.25])
        attach.finish(submit, 2)
        content = (await call).choices[0].logprobs.content
        assert bytes(byte for item in content for byte in item.bytes).decode() == "é"
        assert [item.logprob for item in content] == [-0.5, -0.25]
        call = asyncio.create_task(client.completions.create(model="tiny", prompt="x", logprobs=0))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("ab"), logprobs=[-0.5, -0.25])
        attach.finish(submit, 2)
        logprobs = (await call).choices[0].logprobs
    assert logprobs.tokens == ["a", "b"]
    assert logprobs.text_offset == [0, 1]
    assert logprobs.token_logprobs == [-0.5, -0.25]
    assert logprobs.top_logprobs == [{"a": -0.5}, {"b": -0.25}]


async def test_openai_error_classes(checkpoint):
    async with openai_gateway(checkpoint) as (client, _):
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model="nope", prompt="x")
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as long:
            await client.completions.create(model="tiny", prompt="x" * 512)
        assert long.value.code == "context_length_exceeded"


async def test_the_stream_on_the_wire(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"prompt": "x", "stream": True}
        call = post(client, "/v1/completions", body, headers={"x-request-id": "mine"})
        attach.say(await attach.next("submit"), "ok")
        response = await call
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-request-id"] == "mine"
    *events, last, empty = response.text.split("\n\n")
    assert (last, empty) == ("data: [DONE]", "")
    for event in events:
        assert set(json.loads(event.removeprefix("data: "))) == {
            "id",
            "object",
            "created",
            "model",
            "choices",
        }


async def test_an_overloaded_scheduler_is_a_429_before_the_stream(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for stream, wait_ms, seconds in ((False, 1500, "2"), (True, 1500, "2"), (True, 0, "1")):
            call = post(client, "/v1/completions", {"prompt": "x", "stream": stream})
            submit = await attach.next("submit")
            detail = to_detail(OverloadedError("full", retry_after_ms=wait_ms))
            attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
            response = await call
            assert response.status_code == 429
            assert response.headers["retry-after"] == seconds
            assert response.headers["content-type"] == "application/json"
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


async def test_a_failure_after_the_first_byte_is_one_last_event(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": "x", "stream": True})
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("a"))
        await asyncio.sleep(0.1)
        detail = to_detail(InternalError("the step failed"))
        attach.finish(submit, 1, reason=sampling_pb2.FINISH_REASON_FAILED, error=detail)
        response = await call
    assert response.status_code == 200
    *_, last, _ = response.text.split("\n\n")
    error = json.loads(last.removeprefix("data: "))["error"]
    assert error["message"] == "the step failed"
    assert set(error) == {"message", "type", "param", "code"}
    assert "[DONE]" not in response.text


@pytest.mark.parametrize("has_tokens", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_aborts_at_once(checkpoint, stream, has_tokens):
    async with gateway(checkpoint) as (_, attach, frontend):
        _, writer = await asyncio.open_connection("127.0.0.1", frontend.port)
        body = json.dumps({"prompt": "x", "stream": stream}).encode()
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        submit = await attach.next("submit")
        if has_tokens:
            attach.tokens(submit, 0, ids_of("a"))
            await asyncio.sleep(0.05)
        writer.transport.abort()
        abort = await attach.next("abort")
        assert abort.handle == submit.handle
        attach.send(audit_query=wire.AuditQuery(query_id=1))
        audit = (await attach.next("audit_reply")).audit
        assert (audit.num_open_streams, audit.num_handles) == (0, 0)


async def test_health_says_why(checkpoint):
    scheduler = ScriptedScheduler(served(checkpoint), refusal="too old")
    async with (
        listening(scheduler) as port,
        running_frontend(checkpoint, [port]) as frontend,
        httpx.AsyncClient(base_url=frontend.http_url) as client,
    ):
        async with asyncio.timeout(WAIT_SECONDS):
            while "too old" not in (response := await client.get("/health")).text:
                await asyncio.sleep(0.02)
        assert response.status_code == 503
        assert (await client.get("/live")).status_code == 200
        models = (await client.get("/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["tiny"]
        scheduler.refusal = None
        await frontend.status.wait("ready")
        assert (await client.get("/health")).status_code == 200
