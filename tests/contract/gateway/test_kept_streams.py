"""Streams that go on without their client, and are read again from any event on."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import ids_of
from contract.group_members import pair
from contract.scored_answers import score_tokens, score_whole_prompt
from contract.tool_answers import ASKED, MARKERS, TOOLS

from pagewire_frontend.http.kept_streams.ids import StreamNotFoundError
from support.checkpoints.tool_models import ids_in, make_tool_model

URL = "/v1/chat/completions"
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
}
GOES_ON = {"x-pagewire-on-disconnect": "continue"}
TEXT = "one two \N{SNOWMAN} three"


@asynccontextmanager
async def asked(client, attach, body=CHAT, **headers):
    """Yield the open response and its submit; leaving goes away from the stream."""
    kwargs = {"json": body, "headers": {**GOES_ON, **headers}}
    opening = asyncio.create_task(
        client.send(client.build_request("POST", URL, **kwargs), stream=True)
    )
    submit = await attach.next("submit")
    attach.tokens(submit, 0, ids_of(TEXT[:4]))
    response = await opening
    try:
        yield response, submit
    finally:
        await response.aclose()


async def events_of(response):
    """Yield pairs of the id and the data of an event."""
    event_id = None
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            event_id = value
        elif name == "data":
            yield event_id, value


def rest_of(attach, submit):
    """Send what TEXT goes on with, and the end."""
    ids = ids_of(TEXT)
    attach.tokens(submit, 4, ids[4:])
    attach.finish(submit, len(ids))


async def read_again(client, stream_id, headers=None, **params):
    async with client.stream(
        "GET", f"/v1/streams/{stream_id}", headers=headers or {}, params=params
    ) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        return [event async for event in events_of(response)]


def text_of(events):
    chunks = [json.loads(data) for _, data in events if data != "[DONE]"]
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )


async def test_a_stream_is_read_on_where_its_client_left(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        async with asked(client, attach) as (response, submit):
            stream_id = response.headers["x-pagewire-stream"]
            seen = []
            async for event in events_of(response):
                seen.append(event)
                if text_of(seen):
                    break
        rest_of(attach, submit)
        last = seen[-1][0]
        rest = await read_again(client, stream_id, {"last-event-id": last})
        whole = await read_again(client, stream_id)
        third = await read_again(client, stream_id, **{"from": 2})
        again = await client.post(URL, json=CHAT, headers={"last-event-id": last})
    assert [one for one, _ in whole] == [f"{stream_id}:{index}" for index in range(len(whole))]
    assert [*seen, *rest] == whole
    assert text_of(whole) == TEXT
    assert json.loads(whole[-2][1])["usage"]["completion_tokens"] == len(ids_of(TEXT))
    assert whole[-1][1] == "[DONE]"
    assert third == whole[2:]
    assert again.text.count("data: ") == len(rest)
    assert again.headers["x-pagewire-stream"] == stream_id


async def test_its_events_are_those_of_any_stream(checkpoint):
    """But for ids and times; of completions with prompt log-probabilities, too."""
    path = "/v1/completions"
    body = {"model": "tiny", "prompt": "x", "stream": True, "echo": True, "logprobs": 1}
    found = []
    async with gateway(checkpoint) as (client, attach, _):
        for headers in ({}, GOES_ON):
            call = post(client, path, body, headers=headers)
            submit = await attach.next("submit")
            ids = ids_of("yes")
            score_whole_prompt(attach, submit)
            score_tokens(attach, submit, ids, [(-0.5, 1, [(ids[0], -0.5)])] * len(ids))
            attach.finish(submit, len(ids))
            lines = (await call).text.splitlines()
            datas = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            chunks = [json.loads(data) for data in datas[:-1]]
            found.append([{**one, "id": "", "created": 0} for one in chunks])
            assert datas[-1] == "[DONE]"
    assert found[0] == found[1]


async def test_without_the_header_a_stream_ends_with_its_client(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        async with asked(client, attach, **{"x-pagewire-on-disconnect": "abort"}) as (
            response,
            submit,
        ):
            assert "x-pagewire-stream" not in response.headers
        assert (await attach.next("abort")).handle == submit.handle


async def test_a_stream_that_nobody_reads_is_dropped(checkpoint):
    async with gateway(checkpoint, stream_retention_seconds=0.3) as (client, attach, _):
        async with asked(client, attach) as (response, submit):
            stream_id = response.headers["x-pagewire-stream"]
            await asyncio.sleep(0.6)  # it is read all the time
            assert not attach.unread()
        assert (await attach.next("abort")).handle == submit.handle
        gone = await client.get(f"/v1/streams/{stream_id}")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "stream_not_found")


async def test_what_fails_is_read_again_as_well(checkpoint):
    async with gateway(checkpoint, stream_journal_bytes=40 * 1024) as (client, attach, _):
        async with asked(client, attach) as (response, submit):
            stream_id = response.headers["x-pagewire-stream"]
            for number in range(300):
                attach.tokens(submit, 4 + number, ids_of("x"))
                await asyncio.sleep(0)
            seen = [event async for event in events_of(response)]
        assert (await attach.next("abort")).handle == submit.handle
        assert await read_again(client, stream_id) == seen
    assert "--stream-journal-bytes" in json.loads(seen[-1][1])["error"]["message"]


async def test_other_tenants_find_nothing(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=sk-a\nb=sk-b\n")
    async with gateway(checkpoint, api_key_file=str(file)) as (client, attach, _):
        own, other = ({"authorization": f"Bearer sk-{name}"} for name in "ab")
        async with asked(client, attach, **own) as (response, submit):
            stream_id = response.headers["x-pagewire-stream"]
        rest_of(attach, submit)
        for headers in (other, {**other, "last-event-id": f"{stream_id}:0"}):
            refused = await client.get(f"/v1/streams/{stream_id}", headers=headers)
            assert refused.status_code == 404
            assert refused.json()["error"]["code"] == "stream_not_found"
        joined = await client.post(
            URL, json=CHAT, headers={**other, "last-event-id": f"{stream_id}:0"}
        )
        assert joined.status_code == 404
        assert text_of(await read_again(client, stream_id, own)) == TEXT


@pytest.mark.parametrize(
    ("settings", "body", "headers", "param", "text"),
    [
        ({}, CHAT, {"x-pagewire-on-disconnect": "stay"}, "x-pagewire-on-disconnect", "'stay'"),
        ({}, {**CHAT, "stream": False}, GOES_ON, "x-pagewire-on-disconnect", "stream must be true"),
        (
            {"stream_retention_seconds": 0.0},
            CHAT,
            GOES_ON,
            "x-pagewire-on-disconnect",
            "--stream-retention-seconds is 0",
        ),
        ({}, CHAT, {"last-event-id": "7"}, "last-event-id", "is not the id of an event"),
        ({}, CHAT, {"last-event-id": f"stream_{'0' * 8}_{'0' * 32}:1"}, "stream_id", "is gone"),
    ],
)
async def test_headers_that_cannot_be_met(checkpoint, settings, body, headers, param, text):
    body = {name: value for name, value in body.items() if name != "stream_options"}
    async with gateway(checkpoint, **settings) as (client, attach, _):
        refused = await client.post(URL, json=body, headers=headers)
        assert not attach.unread()
    assert refused.status_code in (400, 404)
    error = refused.json()["error"]
    assert error["param"] == param
    assert text in error["message"]


async def numbered(*, ends=True):
    """Yield five events, as a source does."""
    for number in range(5):
        yield b"data: %d\n\n" % number
    if not ends:
        await asyncio.Event().wait()


@pytest.mark.parametrize("ends", [True, False])
async def test_any_frontend_of_a_group_reads_it(tmp_path, ends):
    async with pair(tmp_path) as (first, second):
        kept = first.streams.keep(numbered(ends=ends), lambda: None, "a")
        reading = await second.group.streams.read(kept.stream_id, "a", 2)
        frames = []
        async for ready in reading.frames:
            frames += ready
            if len(frames) == 3 and not ends:
                break
        assert [frame.splitlines()[1] for frame in frames] == [b"data: 2", b"data: 3", b"data: 4"]
        reading.close()
        async with asyncio.timeout(10):
            while kept.num_readers:
                await asyncio.sleep(0.01)
        for stream_id, tenant in ((kept.stream_id, "b"), (kept.stream_id[:-1] + "g", "a")):
            with pytest.raises(StreamNotFoundError):
                await second.group.streams.read(stream_id, tenant, 0)


async def test_a_cursor_of_another_stream_is_refused(checkpoint):
    other = f"stream_{'0' * 8}_{'1' * 32}"
    async with gateway(checkpoint) as (client, attach, _):
        async with asked(client, attach) as (response, submit):
            path = f"/v1/streams/{response.headers['x-pagewire-stream']}"
            refused = await client.get(path, headers={"last-event-id": f"{other}:3"})
            assert refused.json()["error"]["param"] == "last-event-id"
            assert (await client.get(path, params={"from": "-1"})).status_code == 400
        rest_of(attach, submit)


async def test_a_stream_can_be_ended_by_its_id(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=sk-a\nb=sk-b\n")
    mine, other = ({"authorization": f"Bearer sk-{name}"} for name in "ab")
    async with gateway(checkpoint, api_key_file=str(file)) as (client, attach, _):
        async with asked(client, attach, **mine) as (response, submit):
            url = f"/v1/streams/{response.headers['x-pagewire-stream']}"
        assert (await client.delete(url, headers=other)).status_code == 404
        answer = await client.delete(url, headers=mine)
        assert (answer.status_code, answer.json()["deleted"]) == (200, True)
        assert (await attach.next("abort")).handle == submit.handle
        for again in (client.delete(url, headers=mine), client.get(url, headers=mine)):
            assert (await again).status_code == 404


async def test_tool_calls_are_read_again_as_they_were_read(tmp_path):
    folder = make_tool_model(tmp_path / "tools", marker="<tool_call>", tokens=MARKERS)
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Z", "days": 2}}\n</tool_call>'
    body = {**CHAT, "messages": ASKED, "tools": TOOLS}
    ids = ids_in(folder, "Wait.\n" + call)
    async with gateway(folder) as (client, attach, _):
        request = client.build_request("POST", URL, json=body, headers=GOES_ON)
        opening = asyncio.create_task(client.send(request, stream=True))
        submit = await attach.next("submit")
        attach.tokens(submit, 0, ids[:1])
        response = await opening
        reading = asyncio.create_task(_all_of(events_of(response)))
        for position, token in enumerate(ids[1:], 1):
            await asyncio.sleep(0.002)  # one event for each
            attach.tokens(submit, position, [token])
        attach.finish(submit, len(ids))
        first = await reading
        await response.aclose()
        stream_id = response.headers["x-pagewire-stream"]
        for start in (0, 0, len(first) // 2):
            again = await read_again(client, stream_id, **{"from": start})
            assert again == first[start:]
    assert sum("tool_calls" in data for _, data in first) > 4


async def _all_of(events):
    return [event async for event in events]
