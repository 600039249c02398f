"""What one frontend counts, and how it shows it."""

import asyncio
import time
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import STOP, WAIT_SECONDS, ids_of
from contract.frontend_processes import samples

from pagewire_protos.frontend.v1 import inference_pb2

REQUESTS = "pagewire_requests_total"
COMPLETE = "/pagewire.frontend.v1.InferenceService/Complete"
BODY = {"model": "tiny", "prompt": "hi", "max_tokens": 5}


class Growth:
    """What has been added since; the numbers are of the whole process, which runs other tests."""

    def __init__(self, client, before):
        self._client = client
        self._before = before

    async def of(self, *key):
        found = samples((await self._client.get("/metrics")).text)
        return found.get(key, 0.0) - self._before.get(key, 0.0)

    async def until(self, expected, *key):
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.of(*key) != expected:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def counting(checkpoint, **settings):
    """Yield (client, attach, frontend, growth)."""
    async with gateway(checkpoint, **settings) as (client, attach, frontend):
        before = samples((await client.get("/metrics")).text)
        yield client, attach, frontend, Growth(client, before)


async def test_tokens_and_times(checkpoint):
    async with counting(checkpoint) as (client, attach, _, grown):
        call = post(client, "/v1/completions", BODY)
        submit = await attach.next("submit")
        assert await grown.of("pagewire_generations_in_flight", "tiny") == 1
        ids = ids_of("hello")
        began = time.monotonic()
        attach.tokens(submit, 0, ids[:2], num_cached=1)
        await grown.until(2, "pagewire_generation_tokens_total", "tiny")
        await asyncio.sleep(0.05)
        attach.tokens(submit, 2, ids[2:])
        attach.finish(submit, 5, reason=STOP)
        assert (await call).status_code == 200
        assert await grown.of("pagewire_prompt_tokens_total", "tiny") == len(ids_of("hi"))
        assert await grown.of("pagewire_cached_prompt_tokens_total", "tiny") == 1
        assert await grown.of("pagewire_generation_tokens_total", "tiny") == 5
        # Five tokens have four intervals between them; that of the first chunk is 0 s.
        interval = "pagewire_inter_token_latency_seconds"
        assert await grown.of(f"{interval}_count", "tiny") == 4
        # The first chunk may have waited for its frontend longer than the second.
        assert 0 < await grown.of(f"{interval}_sum", "tiny") < time.monotonic() - began
        assert await grown.of("pagewire_time_to_first_token_seconds_count", "tiny") == 1
        assert await grown.of("pagewire_generation_seconds_count", "tiny") == 1
        assert await grown.of("pagewire_finished_choices_total", "tiny", "stop") == 1
        assert await grown.of(REQUESTS, "/v1/completions", "http", "200") == 1
        assert await grown.of("pagewire_generations_in_flight", "tiny") == 0


async def test_tokens_after_a_stop_string_are_not_counted(checkpoint):
    async with counting(checkpoint) as (client, attach, _, grown):
        call = post(client, "/v1/completions", {**BODY, "stop": "l", "max_tokens": 9})
        attach.tokens(await attach.next("submit"), 0, ids_of("hello you"))
        usage = (await call).json()["usage"]
        assert await grown.of("pagewire_generation_tokens_total", "tiny") == 3
        assert usage["completion_tokens"] == 3
        assert await grown.of("pagewire_finished_choices_total", "tiny", "stop") == 1


async def test_a_client_that_leaves(checkpoint):
    async with counting(checkpoint) as (client, attach, _, grown):
        call = post(client, "/v1/completions", BODY)
        await attach.next("submit")
        call.cancel()
        await grown.until(1, "pagewire_finished_choices_total", "tiny", "aborted")
        await grown.until(1, REQUESTS, "/v1/completions", "http", "499")
        await grown.until(0, "pagewire_generations_in_flight", "tiny")
        assert await grown.of("pagewire_generation_seconds_count", "tiny") == 0


async def test_a_deadline_and_a_resume(checkpoint):
    async with counting(checkpoint, max_request_seconds=0.5) as (client, attach, _, grown):
        call = post(client, "/v1/completions", BODY)
        submit = await attach.next("submit")
        # A gap: it is submitted again.
        attach.tokens(submit, 3, ids_of("x"))
        await attach.next("submit")
        assert (await call).status_code == 504
        assert await grown.of("pagewire_finished_choices_total", "tiny", "deadline") == 1
        assert await grown.of("pagewire_resumes_total", "tiny") == 1
        assert await grown.of(REQUESTS, "/v1/completions", "http", "504") == 1


async def test_what_a_client_makes_up_is_no_label(checkpoint):
    async with counting(checkpoint) as (client, _, _, grown):
        assert (await client.get("/made/up")).status_code == 404
        assert (await client.get("/v1/models/made-up")).status_code == 404
        assert (await client.post("/v1/completions", json={"model": "made-up"})).status_code != 200
        text = (await client.get("/metrics")).text
        assert "made" not in text
        assert await grown.of(REQUESTS, "other", "http", "404") == 1
        assert await grown.of(REQUESTS, "/v1/models/{model_id:path}", "http", "404") == 1


async def test_calls_are_counted_by_their_status(checkpoint):
    async with counting(checkpoint) as (_, attach, frontend, grown):
        request = inference_pb2.CompleteRequest(model="tiny", text="hi")
        call = frontend.stub.Complete(request)
        submit = await attach.next("submit")
        assert await grown.of("pagewire_requests_in_flight", "grpc") == 1
        attach.say(submit, "hello")
        async for _ in call:
            pass
        await grown.until(1, REQUESTS, COMPLETE, "grpc", "OK")

        with pytest.raises(grpc.aio.AioRpcError):
            await frontend.stub.Complete(inference_pb2.CompleteRequest(model="nope")).read()
        await grown.until(1, REQUESTS, COMPLETE, "grpc", "NOT_FOUND")

        leaving = frontend.stub.Complete(request)
        await attach.next("submit")
        leaving.cancel()
        await grown.until(1, REQUESTS, COMPLETE, "grpc", "CANCELLED")
        assert await grown.of(REQUESTS, COMPLETE, "grpc", "OK") == 1
        assert await grown.of("pagewire_requests_in_flight", "grpc") == 0


async def test_one_frontend_is_a_group_of_one(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        found = samples((await client.get("/metrics")).text)
        assert found["pagewire_frontend_processes",] == 1
        assert found["pagewire_frontend_processes_missing",] == 0
