"""POST /v1/responses on a real socket: whole and streamed, over raw HTTP and with the openai
client. Every body and event is held to the published types."""

import asyncio
import json
from typing import Any

import pytest
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import eventually, ids_of
from contract.response_gateway import TOOL, URL, events_of, prompt_of, say, streamed

from pagewire_protos.common.v1 import sampling_pb2
from support.oracles.response_shapes import check_response, check_stream


async def test_whole(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, URL, {"model": "tiny", "input": "hi", "instructions": "Be brief."})
        submit = await attach.next("submit")
        assert prompt_of(submit) == "system\nBe brief.\nuser\nhi\nassistant\n"
        say(attach, submit, "Grüße", num_cached=2)
        answer = await call
        body = answer.json()
        check_response(body)
        again = await client.get(f"{URL}/{body['id']}")
    assert answer.status_code == 200
    assert again.json() == body
    [item] = body["output"]
    assert item["content"][0]["text"] == "Grüße"
    assert (body["status"], item["status"], body["instructions"]) == (
        "completed",
        "completed",
        "Be brief.",
    )
    usage = body["usage"]
    assert usage["input_tokens"] == len(submit.prompt_token_ids) // 4
    assert usage["output_tokens"] == len("Grüße".encode())
    assert usage["input_tokens_details"]["cached_tokens"] == 2


async def test_stream(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = asyncio.create_task(streamed(client, {"model": "tiny", "input": "hi"}))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("one "))
        await asyncio.sleep(0.05)
        attach.tokens(submit, 4, ids_of("two"))
        attach.finish(submit, 7, reason=sampling_pb2.FINISH_REASON_STOP)
        events = await call
    items = check_stream(events)
    assert items[0]["content"][0]["text"] == "one two"
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


async def test_the_helper_of_the_client_follows_a_stream(checkpoint, marked):
    async with openai_gateway(checkpoint) as (client, attach):

        async def follow() -> Any:
            async with client.responses.stream(model="tiny", input="hi", tools=[TOOL]) as stream:
                kinds = [event.type async for event in stream]
                return kinds, await stream.get_final_response()

        call = asyncio.create_task(follow())
        submit = await attach.next("submit")
        say(attach, submit, '<Hm.>Let me see.[weather{"city":"Rom"}][weather{"city":"Ulm"}]')
        kinds, final = await call
    assert "response.function_call_arguments.delta" in kinds
    assert "response.reasoning_text.delta" in kinds
    assert [item.type for item in final.output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert final.output_text == "Let me see."
    assert [json.loads(item.arguments)["city"] for item in final.output[2:]] == ["Rom", "Ulm"]
    assert final.usage.output_tokens_details.reasoning_tokens == 3


async def test_items_of_a_stream(checkpoint, marked):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"model": "tiny", "input": "hi", "tools": [TOOL], "tool_choice": "required"}
        call = asyncio.create_task(streamed(client, body))
        text = '<Hm, so.>\n[weather{"city":"Rom"}]Done <x>y'
        submit = await attach.next("submit")
        for place, token in enumerate(ids_of(text)):
            attach.tokens(submit, place, [token])
            await asyncio.sleep(0)
        attach.finish(submit, len(text), reason=sampling_pb2.FINISH_REASON_STOP)
        items = check_stream(await call)
    kinds = [items[index]["type"] for index in range(len(items))]
    assert kinds == ["reasoning", "function_call", "message", "reasoning", "message"]
    [use] = marked
    assert (use.mode, use.name, use.tools[0].name, use.is_parallel) == (
        "required",
        None,
        "weather",
        True,
    )


async def test_the_length_cuts_the_last_item(checkpoint, marked):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"model": "tiny", "input": "hi", "max_output_tokens": 9, "tools": [TOOL]}
        call = asyncio.create_task(streamed(client, body))
        submit = await attach.next("submit")
        assert submit.sampling.max_tokens == 9
        say(attach, submit, '[w{"city":', reason=sampling_pb2.FINISH_REASON_LENGTH)
        events = await call
    items = check_stream(events)
    body = events[-1]["response"]
    assert (body["status"], items[0]["status"]) == ("incomplete", "incomplete")
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_an_empty_answer_is_an_empty_message(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = asyncio.create_task(streamed(client, {"model": "tiny", "input": "hi"}))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, [2])
        attach.finish(submit, 1, reason=sampling_pb2.FINISH_REASON_STOP)
        items = check_stream(await call)
    assert items[0]["content"][0]["text"] == ""


async def test_a_client_that_goes_away_ends_the_response(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        found = []

        async def read() -> None:
            body = {"model": "tiny", "input": "hi", "stream": True}
            async with client.stream("POST", URL, json=body) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        found.append(json.loads(line.removeprefix("data: ")))

        call = asyncio.create_task(read())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("some"))
        await eventually(lambda: any("delta" in event for event in found), "a delta")
        response_id = found[0]["response"]["id"]
        running = (await client.get(f"{URL}/{response_id}")).json()
        call.cancel()
        assert (await attach.next("abort")).handle == submit.handle
        body = (await client.get(f"{URL}/{response_id}")).json()
    check_response(running)
    check_response(body)
    assert running["status"] == "in_progress"
    assert body["status"] == "cancelled"
    assert body["output"][0]["status"] == "incomplete"
    assert body["output"][0]["content"][0]["text"] == "some"


async def test_a_failure_after_the_first_token_is_an_event(checkpoint):
    async with gateway(checkpoint, max_request_seconds=0.5) as (client, attach, _):
        call = asyncio.create_task(streamed(client, {"model": "tiny", "input": "hi"}))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("some"))
        events = await call
        check_stream(events)
        body = (await client.get(f"{URL}/{events[0]['response']['id']}")).json()
        await attach.next("abort")
        whole = post(client, URL, {"model": "tiny", "input": "hi"})
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("some"))
        answer = await whole
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert events[-2]["code"] == "deadline_exceeded"
    assert body == events[-1]["response"]
    assert body["error"]["code"] == "server_error"
    assert answer.status_code == 504


async def test_what_is_not_stored_cannot_be_asked_for(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, URL, {"model": "tiny", "input": "hi", "store": False})
        say(attach, await attach.next("submit"), "x")
        body = (await call).json()
        again = await client.get(f"{URL}/{body['id']}")
    check_response(body)
    assert again.status_code == 404


async def test_the_stream_on_the_wire(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, URL, {"model": "tiny", "input": "hi", "stream": True})
        say(attach, await attach.next("submit"), "x")
        answer = await call
    assert "[DONE]" not in answer.text
    assert events_of(answer.text)[-1]["type"] == "response.completed"
    assert answer.headers["cache-control"] == "no-cache"
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_refused_request_is_a_plain_status(checkpoint, is_streamed):
    async with gateway(checkpoint) as (client, _, _):
        body = {"model": "tiny", "input": "x" * 600, "stream": is_streamed}
        answer = await client.post(URL, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (
            400,
            "context_length_exceeded",
            "input",
        )
        answer = await client.post(URL, json={**body, "input": "x", "max_output_tokens": 600})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "max_output_tokens")
        assert error["message"].endswith("max_output_tokens is 600")
