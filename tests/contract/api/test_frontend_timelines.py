"""Usage says where the time of each choice went: in the trailing metadata of gRPC and in HTTP
bodies, also of choices that the frontend ended itself."""

import asyncio
import json
from typing import Any

import pytest
from contract.frontend_clients import Reader, completion
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import (
    Attach,
    ScriptedScheduler,
    attached_frontend,
    ids_of,
    listening,
    running_frontend,
    served,
)
from contract.response_gateway import URL, events_of

from pagewire_protos.common.v1 import layout_pb2, timeline_pb2, usage_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from support.oracles.openai_shapes import check, read_stream

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
SHAPES = {"/v1/chat/completions": "Chat", "/v1/completions": "Completion"}
TIERS = {"worker": 1, "memory": 2}
WAITS = [
    timeline_pb2.QueueWait(reason=timeline_pb2.QUEUE_REASON_ADAPTER, wait_us=1250),
    # Of a newer scheduler.
    timeline_pb2.QueueWait(reason=99, wait_us=250),  # type: ignore[arg-type]
]


def tell(attach: Attach, submit: wire.Submit, *, choice: int = 0, **facts: Any) -> None:
    """Say where the time of a choice went."""
    tiers = [usage_pb2.CachedTokens(tier=name, num_tokens=num) for name, num in TIERS.items()]
    timeline = timeline_pb2.ChoiceTimeline(cached_tokens=facts.pop("cached", tiers), **facts)
    entry = wire.HandleTimeline(
        handle=submit.handle, choice=choice, epoch=submit.epoch, timeline=timeline
    )
    attach.send(timelines=wire.TimelineBatch(timelines=[entry]))


def answer(attach: Attach, submit: wire.Submit, text: str = "yes", *, choice: int = 0) -> None:
    """Answer one choice whole, its timeline first, as a scheduler does."""
    facts = {"queue_us": 1500, "prefill_us": 20_000, "transfer_us": 250, "transfer_bytes": 64}
    tell(
        attach,
        submit,
        choice=choice,
        transport=layout_pb2.KV_TRANSPORT_SHARED_MEMORY,
        is_handed_off=True,
        num_migrations=1 + choice,
        num_recoveries=2,
        queue_waits=WAITS,
        paused_us=500,
        **facts,
    )
    attach.tokens(submit, 0, ids_of(text), choice=choice, num_cached=3)
    attach.finish(submit, len(text), choice=choice)


def check_one(shown: dict[str, Any], num_migrations: int = 1) -> None:
    measured = [shown.pop("tokenize_ms"), shown.pop("decode_ms")]
    assert all(value >= 0 for value in measured)
    assert shown == {
        "queue_ms": 1.5,
        "queue_ms_by_reason": {"adapter": 1.25},
        "paused_ms": 0.5,
        "prefill_ms": 20.0,
        "transfer_ms": 0.25,
        "transfer_bytes": 64,
        "transport": "shared_memory",
        "num_preemptions": 0,
        "num_migrations": num_migrations,
        "num_recoveries": 2,
        "is_handed_off": True,
        "cached_tokens_by_tier": TIERS,
    }


async def timelines_of(reader: Reader) -> list[Any]:
    """Return what the trailing metadata of a stream say."""
    await reader.end()
    trailer = dict(tuple(await reader.call.trailing_metadata()))
    return json.loads(trailer["pagewire-timeline"])


@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_bodies_show_every_choice(checkpoint, path, is_streamed):
    body: dict[str, Any] = {"prompt": "hi"} if path == "/v1/completions" else {**CHAT}
    body["n"] = 2
    if is_streamed:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, path, body)
        submit = await attach.next("submit")
        answer(attach, submit, choice=1)
        answer(attach, submit, choice=0)
        response = await call
    values = read_stream(response.text) if is_streamed else [response.json()]
    last = [value for value in values if isinstance(value, dict)][-1]
    shape = "Chunk" if is_streamed else "Completion" if path == "/v1/chat/completions" else ""
    check(f"{SHAPES[path]}{shape}", last)
    first, second = last["usage"]["timeline"]
    check_one(first)
    check_one(second, num_migrations=2)


async def test_prompts_of_one_body_stand_in_their_order(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", {"prompt": ["hi", "ho"]})
        submits = [await attach.next("submit") for _ in range(2)]
        by_prompt = sorted(submits, key=lambda submit: submit.prompt_token_ids != prompt_of("hi"))
        for submit, queue_us in zip(reversed(by_prompt), (7000, 3000), strict=True):
            tell(attach, submit, queue_us=queue_us, cached=[])
            attach.tokens(submit, 0, ids_of("ok"))
            attach.finish(submit, 2)
        shown = (await call).json()["usage"]["timeline"]
    assert [one["queue_ms"] for one in shown] == [3.0, 7.0]


def prompt_of(text: str) -> bytes:
    return b"".join(token_id.to_bytes(4, "little") for token_id in ids_of(text))


async def test_responses_show_it(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for is_streamed in (False, True):
            call = post(client, URL, {"model": "tiny", "input": "hi", "stream": is_streamed})
            answer(attach, await attach.next("submit"))
            if is_streamed:
                body = events_of((await call).text)[-1]["response"]
            else:
                body = (await call).json()
                check("Response", body)
            [shown] = body["usage"]["timeline"]
            check_one(shown)


async def test_the_openai_client_takes_it(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(client.chat.completions.create(model="tiny", **CHAT))
        answer(attach, await attach.next("submit"))
        [shown] = (await call).usage.model_extra["timeline"]
    check_one(shown)


async def test_trailing_metadata_of_grpc_show_it(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        tell(attach, submit, queue_us=1500)
        attach.tokens(submit, 0, ids_of("y"), num_cached=3)
        await reader.holds(1)
        await asyncio.sleep(0.02)
        # Something has happened to it since.
        tell(attach, submit, queue_us=1500, num_preemptions=1)
        attach.tokens(submit, 1, ids_of("es"))
        attach.finish(submit, 3)
        [shown] = await timelines_of(reader)
    assert (shown["queue_ms"], shown["num_preemptions"]) == (1.5, 1)
    assert shown["decode_ms"] > 15
    assert 0 < shown["tokenize_ms"] < 10_000


async def test_nothing_is_shown_where_the_scheduler_says_nothing(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        attach.say(await attach.next("submit"), "yes")
        await reader.end()
        assert "pagewire-timeline" not in dict(tuple(await reader.call.trailing_metadata()))


async def test_a_choice_that_a_stop_string_ended_shows_tiers_and_timeline(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(stop=["es"]))
        submit = await attach.next("submit")
        tell(attach, submit, queue_us=1500)
        attach.tokens(submit, 0, ids_of("yes, and more"), num_cached=3)
        [shown] = await timelines_of(reader)
        usage = reader.closed.usage
    assert reader.text[0] == "y"
    assert shown["queue_ms"] == 1.5
    assert {one.tier: one.num_tokens for one in usage.cached_tokens_by_tier} == TIERS


async def test_tiers_of_a_timeline_that_contradict_the_number_are_not_told(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion(stop=["es"]))
        submit = await attach.next("submit")
        tell(attach, submit)
        attach.tokens(submit, 0, ids_of("yes"), num_cached=2)
        usage = (await reader.end()).closed.usage
    assert usage.cached_tokens == 2
    assert not usage.cached_tokens_by_tier


async def test_the_best_choices_show_their_own(checkpoint):
    body = {"prompt": "hi", "best_of": 3, "n": 1}
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, "/v1/completions", body)
        submit = await attach.next("submit")
        for choice, logprob in enumerate((-2.0, -1.0, -3.0)):
            tell(attach, submit, choice=choice, num_preemptions=choice)
            attach.answer(submit, choice, "yes", logprob=logprob)
        [shown] = (await call).json()["usage"]["timeline"]
    assert shown["num_preemptions"] == 1


async def test_lives_in_two_schedulers_add_up(checkpoint):
    first = ScriptedScheduler(served(checkpoint), generation=1000)
    second = ScriptedScheduler(served(checkpoint), generation=2000)
    async with listening(first) as port:
        frontend_run = running_frontend(checkpoint, [port])
        frontend = await frontend_run.__aenter__()
        attach = await first.attached()
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        tell(attach, submit, queue_us=1000, prefill_us=2000, num_preemptions=1)
        attach.tokens(submit, 0, ids_of("y"), num_cached=3)
        await reader.holds(1)
    async with listening(second, port):
        attach = await second.attached()
        again = await attach.next("submit")
        assert again.epoch == submit.epoch + 1
        tell(attach, again, queue_us=4000, num_preemptions=2, num_migrations=1, cached=[])
        attach.say(again, "yes")
        [shown] = await timelines_of(reader)
        await frontend_run.__aexit__(None, None, None)
    assert (shown["queue_ms"], shown["prefill_ms"]) == (5.0, 2.0)
    assert (shown["num_preemptions"], shown["num_migrations"]) == (3, 1)
    assert shown["num_recoveries"] == 1
    assert shown["cached_tokens_by_tier"] == TIERS


async def test_what_names_nothing_here_changes_nothing(checkpoint):
    async with attached_frontend(checkpoint) as (frontend, attach):
        reader = Reader(frontend, completion())
        submit = await attach.next("submit")
        tell(attach, wire.Submit(handle=submit.handle + 7, epoch=0))
        tell(attach, submit, choice=5)
        tell(attach, wire.Submit(handle=submit.handle, epoch=submit.epoch + 1), queue_us=9)
        answer(attach, submit)
        [shown] = await timelines_of(reader)
    check_one(shown)
