"""Usage says where cached tokens were: over gRPC, in HTTP bodies only if a KV store had some, and
in the Python clients."""

import asyncio
from typing import Any

import pytest
from contract.frontend_clients import Reader, completion
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import (
    STOP,
    Attach,
    ScriptedScheduler,
    attached_frontend,
    ids_of,
    listening,
    running_frontend,
    served,
)
from contract.response_gateway import URL, events_of
from contract.vector_answers import SIZE, prompt_of, send_vectors, vector_of

from pagewire.client.client import AsyncClient
from pagewire_protos.common.v1 import usage_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from support.oracles.openai_shapes import check, read_stream

TIERS = {"worker": 1, "memory": 2}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def cached(tiers: dict[str, int]) -> list[usage_pb2.CachedTokens]:
    return [usage_pb2.CachedTokens(tier=tier, num_tokens=num) for tier, num in tiers.items()]


def answer(
    attach: Attach, submit: wire.Submit, tiers: dict[str, int], *, choice: int = 0, num: int = 3
) -> None:
    """Answer one choice whole."""
    attach.tokens(submit, 0, ids_of("yes"), choice=choice, num_cached=num)
    attach.finish(submit, 3, choice=choice, cached_tokens=cached(tiers))


async def usage_of(checkpoint, tiers: dict[str, int]) -> pb.Usage:
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        answer(attach, await attach.next("submit"), tiers)
        return (await reader.end()).closed.usage


async def test_a_stream_closes_with_tiers(checkpoint):
    usage = await usage_of(checkpoint, TIERS)
    assert usage.cached_tokens == 3
    assert list(usage.cached_tokens_by_tier) == cached(TIERS)


@pytest.mark.parametrize("tiers", [{}, {"memory": 2}, {"memory": 4}])
async def test_tiers_that_contradict_the_number_are_not_told(checkpoint, tiers):
    usage = await usage_of(checkpoint, tiers)
    assert usage.cached_tokens == 3
    assert not usage.cached_tokens_by_tier


async def test_a_tier_that_is_there_twice_breaks_the_stream(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("yes"), num_cached=3)
        attach.finish(submit, 3, cached_tokens=cached({"memory": 2}) + cached({"memory": 1}))
        again = await attach.next_attach()
        [held] = again.hello.held
        resumed = wire.Submit(handle=held.handle, epoch=held.epoch)
        again.finish(resumed, 3, cached_tokens=cached(TIERS))
        usage = (await reader.end()).closed.usage
    assert list(usage.cached_tokens_by_tier) == cached(TIERS)


async def test_choices_count_the_one_that_ran_first(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(n=2))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("yes"), choice=1, num_cached=3)
        attach.finish(submit, 3, choice=1, cached_tokens=cached(TIERS))
        answer(attach, submit, {"disk": 3}, choice=0)
        usage = (await reader.end()).closed.usage
    assert (usage.completion_tokens, usage.cached_tokens) == (6, 3)
    assert list(usage.cached_tokens_by_tier) == cached(TIERS)


async def test_another_scheduler_does_not_change_what_the_first_said(checkpoint):
    first = ScriptedScheduler(served(checkpoint), generation=1000)
    second = ScriptedScheduler(served(checkpoint), generation=2000)
    async with listening(first) as port:
        frontend_run = running_frontend(checkpoint, [port])
        frontend = await frontend_run.__aenter__()
        attach = await first.attached()
        reader = Reader(frontend, completion(n=2))
        submit = await attach.next("submit")
        answer(attach, submit, TIERS)
        await reader.holds(3)
    async with listening(second, port):
        attach = await second.attached()
        again = await attach.next("submit")
        answer(attach, again, {"redis": 3}, choice=1)
        usage = (await reader.end()).closed.usage
        await frontend_run.__aexit__(None, None, None)
    assert list(usage.cached_tokens_by_tier) == cached(TIERS)


SHAPES = {"/v1/chat/completions": "Chat", "/v1/completions": "Completion"}


@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_bodies_say_it_when_a_store_had_some(checkpoint, path, is_streamed):
    body: dict[str, Any] = {"prompt": "hi"} if path == "/v1/completions" else {**CHAT}
    if is_streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with gateway(checkpoint) as (client, attach, _):
        for tiers, expected in (
            (TIERS, {"cached_tokens": 3, "cached_tokens_by_tier": TIERS}),
            ({"worker": 3}, {"cached_tokens": 3}),
            ({}, {"cached_tokens": 3}),
        ):
            call = post(client, path, body)
            answer(attach, await attach.next("submit"), tiers)
            response = await call
            values = read_stream(response.text) if is_streamed else [response.json()]
            last = [value for value in values if isinstance(value, dict)][-1]
            check(f"{SHAPES[path]}{'Chunk' if is_streamed else shape_end(path)}", last)
            assert last["usage"]["prompt_tokens_details"] == expected


def shape_end(path: str) -> str:
    return "Completion" if path == "/v1/chat/completions" else ""


async def test_prompts_of_one_body_are_added_up(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": ["hi", "ho"]})
        answer(attach, await attach.next("submit"), TIERS)
        answer(attach, await attach.next("submit"), {"memory": 1, "redis": 2})
        details = (await call).json()["usage"]["prompt_tokens_details"]
    assert details == {
        "cached_tokens": 6,
        "cached_tokens_by_tier": {"worker": 1, "memory": 3, "redis": 2},
    }


async def test_responses_say_it_too(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for tiers, more in ((TIERS, {"cached_tokens_by_tier": TIERS}), ({"worker": 3}, {})):
            expected = {"cached_tokens": 3, "cache_write_tokens": 0, **more}
            call = post(client, URL, {"model": "tiny", "input": "hi"})
            answer(attach, await attach.next("submit"), tiers)
            body = (await call).json()
            assert body["usage"]["input_tokens_details"] == expected
            check("Response", body)
            call = post(client, URL, {"model": "tiny", "input": "hi", "stream": True})
            answer(attach, await attach.next("submit"), tiers)
            completed = events_of((await call).text)[-1]
            assert completed["response"]["usage"]["input_tokens_details"] == expected


async def test_the_openai_client_reads_it(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(client.chat.completions.create(model="tiny", **CHAT))
        answer(attach, await attach.next("submit"), TIERS)
        details = (await call).usage.prompt_tokens_details
    assert details.cached_tokens == 3
    assert details.model_extra == {"cached_tokens_by_tier": TIERS}


async def test_pagewires_client_reads_it(checkpoint):
    async with (
        attached_frontend(checkpoint, embedding_size=SIZE) as (frontend, attach),
        AsyncClient(frontend.address) as client,
    ):
        task = asyncio.create_task(last_of(client.complete("hi")))
        answer(attach, await attach.next("submit"), TIERS)
        assert (await task).usage.cached_tokens_by_tier == TIERS
        embedding = asyncio.create_task(client.embed(["hi"]))
        submit = await attach.next("submit")
        send_vectors(attach, [(submit, vector_of(prompt_of(submit)))], num_cached=3)
        attach.finish(submit, 0, reason=STOP, cached_tokens=cached(TIERS))
        usage = (await embedding).usage
    assert (usage.cached_tokens, usage.cached_tokens_by_tier) == (3, TIERS)


async def last_of(events: Any) -> Any:
    return [event async for event in events][-1]
