"""Responses that are kept: the next turn, lists, tenants, what is deleted and what is dropped."""

import asyncio
import json

import openai
import pytest
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import LENGTH, eventually, ids_of
from contract.response_gateway import TOOL, URL, events_of, prompt_of, say
from openai.types import responses as published

from support.oracles.response_shapes import check_stream

BACKGROUND = {"model": "tiny", "input": "hi", "background": True}


async def test_the_next_turn(checkpoint, marked):
    async with openai_gateway(checkpoint) as (client, attach):
        call = asyncio.create_task(
            client.responses.create(model="tiny", input="one", instructions="Be.", tools=[TOOL])
        )
        say(attach, await attach.next("submit"), '<Hm>[weather{"city":"Rom"}]')
        first = await call
        made = next(item for item in first.output if item.type == "function_call")
        output = {"type": "function_call_output", "call_id": made.call_id, "output": "rain"}
        call = asyncio.create_task(
            client.responses.create(
                model="tiny", input=[output], previous_response_id=first.id, tools=[TOOL]
            )
        )
        submit = await attach.next("submit")
        # The tiny template shows no calls; the instructions of the first turn are not its.
        assert prompt_of(submit) == "user\none\nassistant\n\ntool\nrain\nassistant\n"
        say(attach, submit, "Wet.")
        second = await call
        listed = await client.responses.input_items.list(second.id, order="asc")
        call = asyncio.create_task(
            client.responses.create(
                model="tiny", input="two", previous_response_id=second.id, instructions="Do."
            )
        )
        submit = await attach.next("submit")
        assert prompt_of(submit).startswith("system\nDo.\nuser\none\n")
        assert prompt_of(submit).endswith("assistant\nWet.\nuser\ntwo\nassistant\n")
        say(attach, submit, "x")
        await call
    assert second.previous_response_id == first.id
    kinds = [item.type for item in listed.data]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]
    published.ResponseItemList.model_validate(listed.model_dump(exclude_unset=True))


async def test_pages_of_input_items(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        turns = [{"role": "user", "content": str(number)} for number in range(5)]
        call = asyncio.create_task(client.responses.create(model="tiny", input=turns))
        say(attach, await attach.next("submit"), "x")
        made = await call
        found = [
            item.content[0].text
            async for item in client.responses.input_items.list(made.id, limit=2)
        ]
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.input_items.list(made.id, limit=101)
    assert found == ["4", "3", "2", "1", "0"]
    assert caught.value.param == "limit"


async def test_what_is_deleted_is_gone(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        made = await client.responses.create(model="tiny", input="hi", background=True)
        submit = await attach.next("submit")
        await client.responses.delete(made.id)
        assert (await attach.next("abort")).handle == submit.handle
        for call in (
            client.responses.retrieve(made.id),
            client.responses.cancel(made.id),
            client.responses.delete(made.id),
            client.responses.input_items.list(made.id),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                await call
            assert (caught.value.code, caught.value.param) == ("response_not_found", "response_id")
            assert "is gone" in str(caught.value)
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(
                model="tiny", input="hi", previous_response_id=f"resp_00000000_{'0' * 32}"
            )
        assert caught.value.param == "previous_response_id"
        assert "is gone with the frontend process" in str(caught.value)


async def test_a_running_response_has_no_next_turn(checkpoint):
    async with openai_gateway(checkpoint) as (client, attach):
        made = await client.responses.create(model="tiny", input="hi", background=True)
        await attach.next("submit")
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="tiny", input="x", previous_response_id=made.id)
    assert caught.value.param == "previous_response_id"


async def test_the_oldest_are_dropped(checkpoint):
    async with gateway(checkpoint, max_stored_responses=2) as (client, attach, _):
        names = []
        for _ in range(3):
            call = post(client, URL, {"model": "tiny", "input": "hi"})
            say(attach, await attach.next("submit"), "x")
            names.append((await call).json()["id"])
        answers = [(await client.get(f"{URL}/{name}")).status_code for name in names]
    assert answers == [404, 200, 200]


async def test_a_server_that_keeps_nothing(checkpoint):
    async with gateway(checkpoint, max_stored_responses=0) as (client, attach, _):
        call = post(client, URL, {"model": "tiny", "input": "hi"})
        say(attach, await attach.next("submit"), "x")
        assert (await call).status_code == 200
        answer = await client.post(URL, json=BACKGROUND)
    assert answer.json()["error"]["param"] == "background"


async def test_a_tenant_sees_its_own(checkpoint, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("a=sk-mine\nb=sk-other\nsk-nobody\n")
    async with gateway(checkpoint, api_key_file=str(keys)) as (client, attach, _):
        mine, other, nobody = (
            {"authorization": f"Bearer sk-{name}"} for name in ("mine", "other", "nobody")
        )
        running = (await client.post(URL, json=BACKGROUND, headers=mine)).json()
        assert (await attach.next("submit")).tenant == "a"
        call = post(client, URL, {"model": "tiny", "input": "hi"}, headers=mine)
        say(attach, await attach.next("submit"), "x")
        stored = (await call).json()
        for name in (running["id"], stored["id"]):
            assert (await client.get(f"{URL}/{name}", headers=mine)).status_code == 200
            for headers in (other, nobody):
                answers = [
                    await client.get(f"{URL}/{name}", headers=headers),
                    await client.get(f"{URL}/{name}?stream=true", headers=headers),
                    await client.get(f"{URL}/{name}/input_items", headers=headers),
                    await client.post(f"{URL}/{name}/cancel", headers=headers),
                    await client.delete(f"{URL}/{name}", headers=headers),
                    await client.post(
                        URL,
                        json={"model": "tiny", "input": "x", "previous_response_id": name},
                        headers=headers,
                    ),
                ]
                assert {answer.status_code for answer in answers} == {404}
                assert all("is gone" in answer.text for answer in answers)


async def test_what_is_deleted_goes_on_for_its_client(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        names = []

        async def read() -> str:
            lines = []
            body = {"model": "tiny", "input": "hi", "stream": True}
            async with client.stream("POST", URL, json=body) as answer:
                async for line in answer.aiter_lines():
                    lines.append(line)
                    if line.startswith("data: ") and not names:
                        names.append(json.loads(line.removeprefix("data: "))["response"]["id"])
            return "\n".join(lines) + "\n"

        call = asyncio.create_task(read())
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids_of("one "))
        await eventually(lambda: bool(names), "the first event")
        assert (await client.delete(f"{URL}/{names[0]}")).json()["deleted"] is True
        attach.tokens(submit, 4, ids_of("two"))
        attach.finish(submit, 7)
        events = events_of(await call)
        gone = await client.get(f"{URL}/{names[0]}")
    assert check_stream(events)[0]["content"][0]["text"] == "one two"
    assert gone.status_code == 404


async def test_half_a_call_is_not_built_on(checkpoint, marked):
    async with gateway(checkpoint) as (client, attach, _):
        body = {"model": "tiny", "tools": [TOOL]}
        call = post(client, URL, {**body, "input": "hi"})
        text = 'Well.[weather{"ci'
        say(attach, await attach.next("submit"), text, reason=LENGTH)
        first = (await call).json()
        assert [item["status"] for item in first["output"]] == ["completed", "incomplete"]
        call = post(client, URL, {**body, "input": "go on", "previous_response_id": first["id"]})
        submit = await attach.next("submit")
        say(attach, submit, "x")
        second = (await call).json()
        listed = (await client.get(f"{URL}/{second['id']}/input_items")).json()["data"]
    assert [item["type"] for item in listed] == ["message"] * 3
    assert prompt_of(submit).endswith("assistant\nWell.\nuser\ngo on\nassistant\n")
