"""Responses that run without their client: state, replay, cancel."""

import asyncio
import json
from typing import Any

import openai
import pytest
from contract.frontend_gateway import gateway, openai_gateway
from contract.frontend_peers import eventually, ids_of
from contract.response_gateway import URL, events_of, say

from support.oracles.response_shapes import check_response, check_stream

BACKGROUND = {"model": "tiny", "input": "hi", "background": True}


async def ended(client: Any, response_id: str) -> dict[str, Any]:
    """Return a response once it is over."""
    body: dict[str, Any] = {}

    async def is_over() -> bool:
        body.update((await client.get(f"{URL}/{response_id}")).json())
        return body["status"] not in ("queued", "in_progress")

    async with asyncio.timeout(10):
        while not await is_over():
            await asyncio.sleep(0.01)
    check_response(body)
    return body


async def test_background(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        made = await client.responses.create(model="tiny", input="hi", background=True)
        submit = await attach.next("submit")
        assert (made.status, made.background) == ("queued", True)
        attach.tokens(submit, 0, ids_of("one "))
        async with asyncio.timeout(10):
            while (now := await client.responses.retrieve(made.id)).status == "queued":
                await asyncio.sleep(0.01)
        assert now.status == "in_progress"
        attach.tokens(submit, 4, ids_of("two"))
        attach.finish(submit, 7)
        async with asyncio.timeout(10):
            while (now := await client.responses.retrieve(made.id)).status == "in_progress":
                await asyncio.sleep(0.01)
    assert now.status == "incomplete"
    assert now.output_text == "one two"


async def test_a_background_response_is_cancelled(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        made = await client.responses.create(model="tiny", input="hi", background=True)
        submit = await attach.next("submit")
        cancelled = await client.responses.cancel(made.id)
        assert (await attach.next("abort")).handle == submit.handle
        again = await client.responses.cancel(made.id)
        kept = await client.responses.retrieve(made.id)
    assert cancelled.status == again.status == kept.status == "cancelled"


async def test_only_a_background_response_can_be_cancelled(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(client.responses.create(model="tiny", input="hi"))
        say(attach, await attach.next("submit"), "x")
        made = await call
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.cancel(made.id)
    assert caught.value.param == "response_id"


async def test_a_background_response_goes_on_without_its_client(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        names = []
        text = ""

        async def read() -> None:
            nonlocal text
            body = {**BACKGROUND, "stream": True}
            async with client.stream("POST", URL, json=body) as answer:
                async for line in answer.aiter_lines():
                    text += line
                    if "response.created" in line and line.startswith("data: "):
                        names.append(json.loads(line.removeprefix("data: "))["response"]["id"])

        call = asyncio.create_task(read())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("one "))
        await eventually(lambda: "one " in text, "a delta")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        follower = asyncio.create_task(client.get(f"{URL}/{names[0]}?stream=true"))
        await asyncio.sleep(0.05)
        attach.tokens(submit, 4, ids_of("two"))
        attach.finish(submit, 7)
        followed = events_of((await follower).text)
        body = await ended(client, names[0])
        replayed = events_of((await client.get(f"{URL}/{names[0]}?stream=true")).text)
        late = await client.get(f"{URL}/{names[0]}?stream=true&starting_after=5")
    assert not attach.unread(), "not aborted"
    assert check_stream(followed)[0]["content"][0]["text"] == "one two"
    assert followed == replayed
    assert [event["type"] for event in followed[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert events_of(late.text) == followed[6:]
    assert body == followed[-1]["response"]


async def test_the_client_resumes_a_background_stream(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        stream = await client.responses.create(
            model="tiny", input="hi", background=True, stream=True
        )
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("one "))
        async for event in stream:
            if event.type == "response.created":
                name = event.response.id
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        attach.tokens(submit, 4, ids_of("two"))
        attach.finish(submit, 7)
        rest = await client.responses.retrieve(
            name, stream=True, starting_after=event.sequence_number
        )
        found = [item async for item in rest]
    assert [item.delta for item in found if item.type == "response.output_text.delta"] == ["two"]
    assert found[0].sequence_number == event.sequence_number + 1


async def test_events_are_kept_of_background_streams_alone(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        made = (await client.post(URL, json=BACKGROUND)).json()
        submit = await attach.next("submit")
        running = await client.get(f"{URL}/{made['id']}?stream=true")
        say(attach, submit, "x")
        await ended(client, made["id"])
        over = await client.get(f"{URL}/{made['id']}?stream=true")
    for refused in (running, over):
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")


async def test_events_of_a_cancelled_response(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        names = []

        async def read() -> str:
            lines = []
            async with client.stream("POST", URL, json={**BACKGROUND, "stream": True}) as answer:
                async for line in answer.aiter_lines():
                    lines.append(line)
                    if line.startswith("data: ") and not names:
                        names.append(json.loads(line.removeprefix("data: "))["response"]["id"])
            return "\n".join(lines) + "\n"

        call = asyncio.create_task(read())
        await attach.next("submit")
        await eventually(lambda: bool(names), "the first event")
        await client.post(f"{URL}/{names[0]}/cancel")
        events = events_of(await call)
    check_stream(events)
    assert (events[-1]["type"], events[-1]["code"]) == ("error", "cancelled")


async def test_a_background_request_is_refused_at_once(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        answer = await client.post(URL, json={**BACKGROUND, "input": "x" * 600})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        answer = await client.post(URL, json={**BACKGROUND, "store": False})
        assert answer.json()["error"]["param"] == "background"


async def test_a_background_response_waits_for_a_worker(checkpoint, monkeypatch):
    monkeypatch.setattr("pagewire_frontend.http.responses.kept_run.ASKED_SECONDS", 0.05)
    async with gateway(checkpoint, max_wait_seconds=0.5) as (client, attach, _):
        attach.send(served_models={})
        await asyncio.sleep(0.05)
        made = (await client.post(URL, json=BACKGROUND)).json()
        check_response(made)
        body = await ended(client, made["id"])
    assert made["status"] == "queued"
    assert body["status"] == "failed"
    assert body["error"]["code"] == "server_error"


async def test_background_needs_no_kept_streams(checkpoint):
    async with gateway(checkpoint, stream_retention_seconds=0) as (client, attach, _):
        for headers in ({"x-pagewire-on-disconnect": "continue"}, {"idempotency-key": "k"}):
            refused = await client.post(
                URL, json={**BACKGROUND, "background": False, "stream": True}, headers=headers
            )
            assert refused.json()["error"]["param"] == next(iter(headers))
        made = (await client.post(URL, json={**BACKGROUND, "stream": False})).json()
        await asyncio.sleep(0.05)
        say(attach, await attach.next("submit"), "x")
        assert (await ended(client, made["id"]))["output"][0]["content"][0]["text"] == "x"


async def left_stream(client, attach, body):
    """Return the id of a stream that goes on, whose client has left after its first token, and what
    was submitted for it."""
    headers = {"x-pagewire-on-disconnect": "continue"}
    request = client.build_request("POST", URL, json=body, headers=headers)
    sending = asyncio.create_task(client.send(request, stream=True))
    submit = await attach.next("submit")
    attach.tokens(submit, 0, ids_of("one "))
    response = await sending
    await response.aclose()
    return response.headers["x-pagewire-stream"], submit


async def test_a_stream_goes_on_without_its_client_where_that_is_asked(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"model": "tiny", "input": "hi", "stream": True}
        wrong = await client.post(URL, json=body, headers={"x-pagewire-on-disconnect": "perhaps"})
        assert wrong.json()["error"]["param"] == "x-pagewire-on-disconnect"
        name, submit = await left_stream(client, attach, body)
        await asyncio.sleep(0.1)
        # It is not in the background.
        assert (await client.post(f"{URL}/{name}/cancel")).status_code == 400
        attach.tokens(submit, 4, ids_of("two"))
        attach.finish(submit, 7)
        events = events_of((await client.get(f"{URL}/{name}?stream=true")).text)
        assert check_stream(events)[0]["content"][0]["text"] == "one two"
        assert (await client.get(f"/v1/streams/{name}")).status_code == 404
        assert (await client.delete(f"{URL}/{name}")).status_code == 200
        for address in (f"{URL}/{name}", f"{URL}/{name}?stream=true"):
            assert (await client.get(address)).status_code == 404
    assert not attach.unread()


async def test_a_stream_without_a_reader_is_cancelled_after_its_retention(checkpoint):
    async with gateway(checkpoint, stream_retention_seconds=0.2) as (client, attach, _):
        body = {"model": "tiny", "input": "hi", "stream": True}
        name, submit = await left_stream(client, attach, body)
        assert (await attach.next("abort")).handle == submit.handle
        assert (await ended(client, name))["status"] == "cancelled"
        events = events_of((await client.get(f"{URL}/{name}?stream=true")).text)
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "cancelled")
        check_stream(events)
        # One in the background needs none.
        made = (await client.post(URL, json=BACKGROUND)).json()
        submit = await attach.next("submit")
        await asyncio.sleep(0.5)
        say(attach, submit, "x")
        assert (await ended(client, made["id"]))["status"] == "completed"
