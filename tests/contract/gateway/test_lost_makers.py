"""Kept streams whose frontend is gone: another makes them again from a recipe."""

import asyncio
import json
import random
from typing import Any

from contract.frontend_gateway import post
from contract.frontend_groups import frontend_group
from contract.frontend_peers import ids_of

from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.rpc.errors import to_detail

URL = "/v1/chat/completions"
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
}
GOES_ON = {"x-pagewire-on-disconnect": "continue"}
TEXT = "one \N{SNOWMAN} two \N{GRINNING FACE} three"


def parsed(text: str) -> list[tuple[str, Any]]:
    """Return ids and data of events."""
    found = []
    for event in text.split("\n\n")[:-1]:
        name, _, data = event.rpartition("data: ")
        found.append((name.strip(), data if data == "[DONE]" else json.loads(data)))
    return found


def plain(text: str) -> list[Any]:
    """Return the data of events without ids and times."""
    datas = [data for _, data in parsed(text)]
    return [one if one == "[DONE]" else {**one, "id": "", "created": 0} for one in datas]


async def begun(frontend, body=CHAT, headers=GOES_ON, text=TEXT[:6]):
    """Return the id of a stream with its first tokens, and its submit."""
    request = frontend.client.build_request("POST", URL, json=body, headers=headers)
    opening = asyncio.create_task(frontend.client.send(request, stream=True))
    submit = await frontend.attach.next("submit")
    frontend.attach.tokens(submit, 0, ids_of(text), num_cached=16)
    response = await opening
    assert response.status_code == 200, await response.aread()
    lines = response.aiter_lines()
    first = await anext(lines)
    await response.aclose()
    return response.headers["x-pagewire-stream"], submit, first


def refuse(attach, submit, field):
    detail = to_detail(InvalidRequestError("not here", field=field))
    attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))


async def test_it_goes_on_with_what_the_scheduler_holds(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        stream_id, submit, _ = await begun(a)
        await a.stop()
        reading = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}?from=3"))
        again = await b.attach.next("submit")
        assert again.must_be_held
        assert again.request_id == submit.request_id
        assert again.sampling == submit.sampling
        # A scheduler may not have noticed yet.
        refuse(b.attach, again, "request_id")
        again = await b.attach.next("submit")
        assert (again.must_be_held, again.request_id) == (True, submit.request_id)
        b.attach.tokens(again, 0, ids_of(TEXT), num_cached=16)
        b.attach.finish(again, len(ids_of(TEXT)))
        rest = parsed((await reading).text)
        whole = parsed((await b.client.get(f"/v1/streams/{stream_id}")).text)
        assert whole[3:] == rest
        assert [name for name, _ in whole] == [
            f"id: {stream_id}:{number}" for number in range(len(whole))
        ]
        chunks = [data for _, data in whole[:-1]]
        deltas = [one["choices"][0]["delta"] for one in chunks if one["choices"]]
        assert "".join(one.get("content", "") for one in deltas) == TEXT
        assert {one["id"] for one in chunks} == {f"chatcmpl-{submit.request_id.hex()}"}
        assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


async def test_it_is_computed_again_where_that_is_exact(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        stream_id, submit, _ = await begun(a)
        await a.stop()
        reading = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}"))
        refuse(b.attach, await b.attach.next("submit"), "must_be_held")
        again = await b.attach.next("submit")
        assert not again.must_be_held
        assert again.request_id != submit.request_id
        assert again.sampling.seed == submit.sampling.seed
        b.attach.say(again, TEXT)
        chunks = [data for _, data in parsed((await reading).text)[:-1]]
        assert {one["id"] for one in chunks} == {f"chatcmpl-{submit.request_id.hex()}"}
        # The tokens were cached for the first run; the second says what it said.
        assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 16


async def test_it_is_refused_where_other_tokens_might_come(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, is_exact=False) as (a, b):
        stream_id, _, _ = await begun(a)
        await a.stop()
        reading = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}"))
        refuse(b.attach, await b.attach.next("submit"), "must_be_held")
        answer = await reading
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "stream_not_repeatable"
        # With what a scheduler holds it goes on all the same.
        reading = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}"))
        b.attach.say(await b.attach.next("submit"), TEXT)
        assert (await reading).text.endswith("data: [DONE]\n\n")


async def test_events_do_not_depend_on_how_tokens_came(checkpoint, tmp_path):
    body = {**CHAT, "n": 2, "stop": ["thr"], "logprobs": True}
    ids, found = ids_of(TEXT.split("thr")[0] + "thr"), []
    async with frontend_group(checkpoint, tmp_path) as (a, _):
        for seed in range(6):
            draw = random.Random(seed)
            call = post(a.client, URL, body, headers=GOES_ON)
            submit = await a.attach.next("submit")
            positions = [0, 0]
            while min(positions) < len(ids):
                choice = draw.choice([one for one in (0, 1) if positions[one] < len(ids)])
                first = positions[choice]
                some = ids[first : first + draw.randint(1, 7)]
                a.attach.tokens(submit, first, some, choice=choice, logprobs=[-0.5] * len(some))
                positions[choice] += len(some)
                await asyncio.sleep(draw.choice([0, 0.002]))
            found.append(plain((await call).text))
            # The choices that a stop string has ended.
            await asyncio.sleep(0.05)
            assert set(a.attach.unread()) <= {"abort"}
    assert all(one == found[0] for one in found)
    said = [one["choices"][0] for one in found[0][:-1] if one["choices"]]
    texts = [
        "".join(c["delta"].get("content", "") for c in said if c["index"] == n) for n in (0, 1)
    ]
    assert texts == [TEXT.split("thr")[0]] * 2


async def test_the_answer_of_a_key_outlives_its_frontend(checkpoint, tmp_path):
    for number, body in enumerate((CHAT, {**CHAT, "stream": False, "stream_options": None})):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with frontend_group(checkpoint, folder, "abc") as (a, b, c):
            key = {"idempotency-key": f"order {number}"}
            call = post(a.client, URL, body, headers=key)
            a.attach.say(await a.attach.next("submit"), TEXT)
            first = await call
            await a.stop()
            asked = [post(one.client, URL, body, headers=key) for one in (b, c, b)]
            nexts = {asyncio.create_task(one.attach.next("submit")): one for one in (b, c)}
            done, rest = await asyncio.wait(nexts, return_when=asyncio.FIRST_COMPLETED)
            (taken,) = done
            refuse(nexts[taken].attach, taken.result(), "must_be_held")
            nexts[taken].attach.say(await nexts[taken].attach.next("submit"), TEXT)
            answers = await asyncio.gather(*asked)
            assert {one.content for one in answers} == {first.content}
            assert {one.headers.get("idempotent-replayed") for one in answers} == {"true"}
            assert not any(one.done() for one in rest), "a second generation"
            for one in rest:
                one.cancel()
            await asyncio.wait(rest)


async def test_another_tenant_cannot_have_it_made_again(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=sk-a\nb=sk-b\n")
    mine, other = ({"authorization": f"Bearer sk-{name}"} for name in "ab")
    async with frontend_group(checkpoint, tmp_path, api_key_file=str(file)) as (a, b):
        stream_id, _, first = await begun(a, headers={**GOES_ON, **mine})
        await a.stop()
        last = {"last-event-id": first.removeprefix("id: ")}
        for call in (
            b.client.get(f"/v1/streams/{stream_id}", headers=other),
            b.client.post(URL, json=CHAT, headers={**other, **last}),
        ):
            assert (await call).status_code in (404, 503)
        assert not b.attach.unread()
        reading = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}", headers=mine))
        submit = await b.attach.next("submit")
        assert submit.tenant == "a"
        # Also while it is made again.
        assert (await b.client.get(f"/v1/streams/{stream_id}", headers=other)).status_code == 404
        b.attach.say(submit, TEXT)
        assert (await reading).text.endswith("data: [DONE]\n\n")


async def test_a_frontend_that_ends_says_so_without_taking_a_number(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path) as (a, b):
        stream_id, _, _ = await begun(a)
        reading = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}"))
        await asyncio.sleep(0.1)
        await a.stop()
        *seen, (last, error) = parsed((await reading).text)
        assert "ask again" in str(error)
        assert not last.startswith("id: ")
        headers = {"last-event-id": seen[-1][0].removeprefix("id: ")}
        going_on = asyncio.create_task(b.client.get(f"/v1/streams/{stream_id}", headers=headers))
        b.attach.say(await b.attach.next("submit"), TEXT)
        rest = parsed((await going_on).text)
        whole = parsed((await b.client.get(f"/v1/streams/{stream_id}")).text)
        assert [*seen, *rest] == whole


async def test_without_replicas_a_stream_ends_with_its_frontend(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, stream_replicas=0) as (a, b):
        stream_id, _, _ = await begun(a)
        await a.stop()
        assert (await b.client.get(f"/v1/streams/{stream_id}")).status_code == 503
        assert not b.attach.unread()
