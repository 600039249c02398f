"""Responses whose frontend is gone: another makes them again, with the same ids and numbers."""

import asyncio
from typing import Any

import httpx
import pytest
from contract.frontend_gateway import post
from contract.frontend_groups import GroupedFrontend, frontend_group
from contract.frontend_peers import ids_of
from contract.gateway.test_lost_makers import refuse
from contract.response_gateway import STOPPED, URL, events_of

from support.oracles.response_shapes import check_response, check_stream

TEXT = "one \N{SNOWMAN} two \N{GRINNING FACE} three"
BODY = {"model": "tiny", "input": "hi"}
GOES_ON = {"x-pagewire-on-disconnect": "continue"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "background": ({"background": True, "stream": True}, {}),
    "continued": ({"stream": True}, GOES_ON),
    "unstored": ({"stream": True, "store": False}, GOES_ON),
}


def end(attach: Any, submit: Any, text: str = TEXT, *, first: int = 0, num_cached: int = 16):
    """Answer a request whole; it ends by itself."""
    ids = ids_of(text)
    attach.tokens(submit, first, ids[first:], num_cached=num_cached)
    attach.finish(submit, len(ids), reason=STOPPED)


async def begun(
    frontend: GroupedFrontend, body: dict[str, Any], headers: dict[str, str] | None = None
) -> tuple[str, Any]:
    """Return the id of a streamed response with its first tokens, and its submit."""
    request = frontend.client.build_request("POST", URL, json={**BODY, **body}, headers=headers)
    opening = asyncio.create_task(frontend.client.send(request, stream=True))
    submit = await frontend.attach.next("submit")
    frontend.attach.tokens(submit, 0, ids_of(TEXT[:6]), num_cached=16)
    response = await opening
    assert response.status_code == 200, await response.aread()
    async for line in response.aiter_lines():
        if "output_text.delta" in line:
            break
    await response.aclose()
    return response.headers["x-pagewire-stream"], submit


async def whole_of(frontend: GroupedFrontend, response_id: str) -> list[dict[str, Any]]:
    answer = await frontend.client.get(f"{URL}/{response_id}?stream=true")
    assert answer.status_code == 200, answer.text
    return events_of(answer.text)


def check_whole(events: list[dict[str, Any]], response_id: str) -> None:
    """Check the events of a response that says TEXT."""
    check_stream(events)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    body = events[-1]["response"]
    assert (body["id"], body["status"]) == (response_id, "completed")
    assert body["output"][0]["content"][0]["text"] == TEXT
    assert body["usage"]["input_tokens_details"]["cached_tokens"] == 16


@pytest.mark.parametrize("kind", KINDS)
async def test_events_go_on_with_what_the_scheduler_holds(checkpoint, tmp_path, kind):
    body, headers = KINDS[kind]
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        response_id, submit = await begun(a, body, headers)
        seen = asyncio.create_task(whole_of(b, response_id))
        await asyncio.sleep(0.1)
        await a.stop()
        address = f"{URL}/{response_id}?stream=true&starting_after=5"
        reading = asyncio.create_task(b.client.get(address))
        again = await b.attach.next("submit")
        assert (again.must_be_held, again.request_id) == (True, submit.request_id)
        assert again.sampling == submit.sampling
        end(b.attach, again)
        rest = events_of((await reading).text)
        whole = await whole_of(b, response_id)
        check_whole(whole, response_id)
        assert whole[6:] == rest
        # The one that read meanwhile was told to ask again behind what it had.
        *before, last = await seen
        assert before == whole[: len(before)]
        assert "sequence_number" not in last
        stored = await b.client.get(f"{URL}/{response_id}")
        if kind == "unstored":
            assert stored.status_code == 404
        else:
            assert stored.json() == whole[-1]["response"]
        assert not b.attach.unread()


async def test_a_background_response_goes_on_without_a_reader(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        call = asyncio.create_task(
            a.client.post(URL, json={**BODY, "background": True, "metadata": {"k": "v"}})
        )
        submit = await a.attach.next("submit")
        made = (await call).json()
        assert made["status"] == "queued"
        await a.stop()
        asked = asyncio.create_task(b.client.get(f"{URL}/{made['id']}"))
        # Its scheduler has lost it, too.
        refuse(b.attach, await b.attach.next("submit"), "must_be_held")
        again = await b.attach.next("submit")
        assert (again.must_be_held, again.sampling.seed) == (False, submit.sampling.seed)
        b.attach.tokens(again, 0, ids_of(TEXT[:6]))
        assert (await asked).json()["status"] in ("queued", "in_progress")
        end(b.attach, again, first=len(ids_of(TEXT[:6])))
        async with asyncio.timeout(10):
            while (now := (await b.client.get(f"{URL}/{made['id']}")).json())["status"] in (
                "queued",
                "in_progress",
            ):
                await asyncio.sleep(0.01)
        check_response(now)
        new = ("status", "output", "usage", "completed_at")
        assert now == {**made, **{name: now[name] for name in new}}
        assert now["output"][0]["content"][0]["text"] == TEXT
        # The events of one without a stream are not kept.
        refused = await b.client.get(f"{URL}/{made['id']}?stream=true")
        assert refused.json()["error"]["param"] == "stream"


async def test_what_was_shown_is_shown_again(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        call = post(a.client, URL, {**BODY, **KINDS["background"][0]})
        end(a.attach, await a.attach.next("submit"))
        shown = events_of((await call).text)
        response_id = shown[0]["response"]["id"]
        await asyncio.sleep(1.1)
        await a.stop()
        reading = asyncio.create_task(whole_of(b, response_id))
        refuse(b.attach, await b.attach.next("submit"), "must_be_held")
        end(b.attach, await b.attach.next("submit"), num_cached=0)
        assert await reading == shown


async def test_a_conversation_outlives_the_frontend_of_its_turns(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, "abc") as (a, b, c):
        call = post(a.client, URL, {**BODY, "store": True})
        end(a.attach, await a.attach.next("submit"), "first")
        first = (await call).json()
        response_id, submit = await begun(
            a, {"background": True, "stream": True, "previous_response_id": first["id"]}
        )
        items = (await a.client.get(f"{URL}/{response_id}/input_items?order=asc")).json()
        await a.stop()
        asked = asyncio.create_task(b.client.get(f"{URL}/{response_id}/input_items?order=asc"))
        nexts = {asyncio.create_task(one.attach.next("submit")): one for one in (b, c)}
        done, rest = await asyncio.wait(nexts, return_when=asyncio.FIRST_COMPLETED)
        (taken,) = done
        attach, again = nexts[taken].attach, taken.result()
        for one in rest:
            one.cancel()
        assert again.prompt_token_ids == submit.prompt_token_ids
        end(attach, again)
        # The first turn is gone with its frontend; what builds on it has it.
        assert (await asked).json() == items
        for one in (b, c):
            assert (await one.client.get(f"{URL}/{first['id']}")).status_code in (404, 503)
            await whole_of(one, response_id)
        body = {**BODY, "previous_response_id": response_id}
        third = post(c.client, URL, body)
        end(c.attach, await c.attach.next("submit"), "third")
        listed = await c.client.get(f"{URL}/{(await third).json()['id']}/input_items?order=asc")
        said = [item["content"][0]["text"] for item in listed.json()["data"]]
        assert said == ["hi", "first", "hi", TEXT, "hi"]


@pytest.mark.parametrize("body", [{}, {"stream": True}, {"background": True}])
async def test_the_answer_of_a_key_outlives_its_frontend(checkpoint, tmp_path, body):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        key = {"idempotency-key": "order 7"}
        call = post(a.client, URL, {**BODY, **body}, headers=key)
        end(a.attach, await a.attach.next("submit"))
        first = await call
        assert "idempotent-replayed" not in first.headers
        for one in (a, b):
            joined = await one.client.post(URL, json={**BODY, **body}, headers=key)
            assert (joined.content, joined.headers["idempotent-replayed"]) == (
                first.content,
                "true",
            )
        await a.stop()
        asked = post(b.client, URL, {**BODY, **body}, headers=key)
        refuse(b.attach, await b.attach.next("submit"), "must_be_held")
        end(b.attach, await b.attach.next("submit"))
        answer = await asked
        assert answer.content == first.content
        assert answer.headers["idempotent-replayed"] == "true"
        other = await b.client.post(URL, json={**BODY, **body, "user": "x"}, headers=key)
        assert other.status_code == 422


async def test_it_is_refused_where_other_tokens_might_come(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, is_exact=False) as (a, b):
        response_id, _ = await begun(a, KINDS["background"][0])
        await a.stop()
        for question in ("", "?stream=true"):
            asked = asyncio.create_task(b.client.get(f"{URL}/{response_id}{question}"))
            refuse(b.attach, await b.attach.next("submit"), "must_be_held")
            answer = await asked
            assert answer.status_code == 409, answer.text
            error = answer.json()["error"]
            assert (error["code"], error["param"]) == ("stream_not_repeatable", "response_id")


async def test_another_tenant_cannot_have_it_made_again(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=sk-a\nb=sk-b\n")
    mine, other = ({"authorization": f"Bearer sk-{name}"} for name in "ab")
    async with frontend_group(checkpoint, tmp_path, api_key_file=str(file)) as (a, b):
        response_id, _ = await begun(a, KINDS["background"][0], mine)
        await a.stop()

        async def refused() -> None:
            address = f"{URL}/{response_id}"
            calls: list[httpx.Response] = [
                await b.client.get(address, headers=other),
                await b.client.get(f"{address}?stream=true", headers=other),
                await b.client.get(f"{address}/input_items", headers=other),
                await b.client.post(f"{address}/cancel", headers=other),
                await b.client.delete(address, headers=other),
                await post(
                    b.client, URL, {**BODY, "previous_response_id": response_id}, headers=other
                ),
            ]
            assert {answer.status_code for answer in calls} <= {404, 503}

        await refused()
        assert not b.attach.unread()
        reading = asyncio.create_task(
            b.client.get(f"{URL}/{response_id}?stream=true", headers=mine)
        )
        submit = await b.attach.next("submit")
        assert submit.tenant == "a"
        # Also while it is made again.
        await refused()
        end(b.attach, submit)
        check_whole(events_of((await reading).text), response_id)


async def test_a_response_that_was_ended_is_not_made_again(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        deleted, submit = await begun(a, KINDS["background"][0])
        assert (await b.client.delete(f"{URL}/{deleted}")).status_code == 200
        assert (await a.attach.next("abort")).handle == submit.handle
        cancelled, submit = await begun(a, KINDS["background"][0])
        now = await b.client.post(f"{URL}/{cancelled}/cancel")
        assert now.json()["status"] == "cancelled"
        assert (await a.attach.next("abort")).handle == submit.handle
        lost, _ = await begun(a, KINDS["background"][0])
        await a.stop()
        for response_id in (deleted, cancelled):
            assert (await b.client.get(f"{URL}/{response_id}")).status_code in (404, 503)
        # Nor is one that is deleted when its frontend is gone.
        assert (await b.client.delete(f"{URL}/{lost}")).status_code == 200
        assert (await b.client.get(f"{URL}/{lost}")).status_code in (404, 503)
        assert not b.attach.unread()


async def test_a_lost_response_is_cancelled(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        response_id, _ = await begun(a, KINDS["background"][0])
        await a.stop()
        asked = asyncio.create_task(b.client.post(f"{URL}/{response_id}/cancel"))
        submit = await b.attach.next("submit")
        b.attach.tokens(submit, 0, ids_of(TEXT[:6]))
        assert (await asked).json()["status"] == "cancelled"
        assert (await b.attach.next("abort")).handle == submit.handle
        assert (await b.client.get(f"{URL}/{response_id}")).json()["status"] == "cancelled"


async def test_without_replicas_a_response_ends_with_its_frontend(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, stream_replicas=0) as (a, b):
        response_id, _ = await begun(a, KINDS["background"][0])
        await a.stop()
        assert (await b.client.get(f"{URL}/{response_id}")).status_code == 503
        assert not b.attach.unread()
