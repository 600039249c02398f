"""Requests with an idempotency key: one generation, however often and wherever they are sent."""

import asyncio

from contract.frontend_gateway import gateway, post
from contract.frontend_groups import frontend_group
from contract.frontend_peers import (
    ids_of,
)
from contract.group_members import member

from pagewire_frontend.group.keys import owners_of
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyHolder, LocalKeys
from pagewire_protos.common.v1.sampling_pb2 import FINISH_REASON_FAILED
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import OverloadedError
from pagewire_shared.rpc.errors import to_detail

URL = "/v1/chat/completions"
WHOLE = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**WHOLE, "stream": True, "stream_options": {"include_usage": True}}
KEY = {"idempotency-key": "order-7"}
KEYS = (KEY, {"idempotency-key": "order-8"})


def sends(attach, submit, text, begin=0):
    """Send an answer from position `begin` on, and its end."""
    ids = ids_of(text)
    attach.tokens(submit, begin, ids[begin:])
    attach.finish(submit, len(ids))


async def test_a_second_request_joins_the_first(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for body, key in zip((WHOLE, STREAM), KEYS, strict=True):
            calls = [post(client, URL, body, headers=key)]
            submit = await attach.next("submit")
            attach.tokens(submit, 0, ids_of("ye"))
            turned = dict(reversed(body.items()))
            calls += [post(client, URL, one, headers=key) for one in (body, turned)]
            await asyncio.sleep(0.05)
            sends(attach, submit, "yes", 2)
            answers = await asyncio.gather(*calls)
            answers.append(await post(client, URL, body, headers=key))
            assert not attach.unread()
            assert {one.status_code for one in answers} == {200}
            assert len({one.content for one in answers}) == 1
            replayed = [one.headers.get("idempotent-replayed") for one in answers]
            assert replayed == [None, "true", "true", "true"]
            if body is STREAM:
                assert answers[0].text.endswith("data: [DONE]\n\n")
                continue
            found = answers[0].json()
            assert found["choices"][0]["message"]["content"] == "yes"
            assert found["usage"]["completion_tokens"] == 3


async def test_it_goes_on_when_its_client_leaves(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for body, key in zip((WHOLE, STREAM), KEYS, strict=True):
            first = post(client, URL, body, headers=key)
            submit = await attach.next("submit")
            attach.tokens(submit, 0, ids_of("y"))
            await asyncio.sleep(0.05)
            first.cancel()
            await asyncio.wait([first])
            retry = post(client, URL, body, headers=key)
            await asyncio.sleep(0.05)
            sends(attach, submit, "yes", 1)
            assert (await retry).headers["idempotent-replayed"] == "true"
            assert not attach.unread()


async def test_another_request_is_refused(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        first = post(client, URL, WHOLE, headers=KEY)
        submit = await attach.next("submit")
        other = {**WHOLE, "max_tokens": 3}
        completion = {"model": "tiny", "prompt": "hi"}
        for path, body in ((URL, other), (URL, STREAM), ("/v1/completions", completion)):
            refused = await client.post(path, json=body, headers=KEY)
            assert refused.status_code == 422
            error = refused.json()["error"]
            assert error["param"] == "idempotency-key"
            assert error["code"] == "idempotency_key_reused"
        sends(attach, submit, "yes")
        assert (await first).status_code == 200


async def test_other_tenants_have_other_keys(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("a=sk-a\nb=sk-b\n")
    async with gateway(checkpoint, api_key_file=str(file)) as (client, attach, _):
        found = []
        for name in "ab":
            headers = {**KEY, "authorization": f"Bearer sk-{name}"}
            call = post(client, URL, WHOLE, headers=headers)
            sends(attach, await attach.next("submit"), f"for {name}")
            found.append((await call).json()["choices"][0]["message"]["content"])
            await client.post(URL, json=WHOLE, headers=headers)
        assert not attach.unread()
    assert found == ["for a", "for b"]


async def test_a_key_has_bounds(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        for key in ("", "k" * 256):
            refused = await client.post(URL, json=WHOLE, headers={"idempotency-key": key})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "idempotency-key"
        other = await client.post("/tokenize", json={"model": "tiny", "prompt": "x"}, headers=KEY)
        assert other.headers["pagewire-ignored"] == "idempotency-key"
        empty = {"last-event-id": ""}
        call = post(client, URL, WHOLE, headers=empty)
        sends(attach, await attach.next("submit"), "yes")
        assert (await call).status_code == 200
    async with gateway(checkpoint, stream_retention_seconds=0.0) as (client, _, _):
        refused = await client.post(URL, json=WHOLE, headers=KEY)
        assert "--stream-retention-seconds is 0" in refused.json()["error"]["message"]


async def test_the_key_of_what_failed_is_free(checkpoint):
    detail = to_detail(OverloadedError("full"))
    async with gateway(checkpoint) as (client, attach, _):
        for body, key in zip((WHOLE, STREAM), KEYS, strict=True):
            for wrong in ({"temperature": -1}, {"max_tokens": 10_000}, {"seed": 10**30}):
                refused = await client.post(URL, json={**body, **wrong}, headers=key)
                assert refused.status_code == 400
            first = post(client, URL, body, headers=key)
            submit = await attach.next("submit")
            second = post(client, URL, body, headers=key)
            await asyncio.sleep(0.05)
            attach.send(rejected=wire.Rejected(handle=submit.handle, epoch=0, error=detail))
            # The second has waited, and tries itself.
            again = await attach.next("submit")
            assert (await first).status_code == 429
            attach.tokens(again, 0, ids_of("y"))
            attach.finish(again, 1, reason=FINISH_REASON_FAILED, error=detail)
            failed = await second
            assert "full" in failed.text
            assert failed.status_code == (200 if body is STREAM else 429)
            await attach.next("abort")
            third = post(client, URL, body, headers=key)
            sends(attach, await attach.next("submit"), "yes")
            assert "idempotent-replayed" not in (await third).headers


async def test_a_key_expires_with_its_stream(checkpoint):
    async with gateway(checkpoint, stream_retention_seconds=0.2) as (client, attach, _):
        for body in (WHOLE, {**WHOLE, "max_tokens": 5}):
            call = post(client, URL, body, headers=KEY)
            sends(attach, await attach.next("submit"), "yes")
            assert "idempotent-replayed" not in (await call).headers
            await asyncio.sleep(0.4)


async def test_requests_that_race_over_three_frontends(checkpoint, tmp_path):
    async with frontend_group(checkpoint, tmp_path, "abc") as members:
        clients = [member.client for member in members]
        attaches = [member.attach for member in members]
        for number, body in enumerate([WHOLE, STREAM] * 2):
            headers = {"idempotency-key": f"key {number}"}
            calls = [post(client, URL, body, headers=headers) for client in clients * 3]
            nexts = {asyncio.create_task(one.next("submit")): one for one in attaches}
            done, rest = await asyncio.wait(nexts, return_when=asyncio.FIRST_COMPLETED)
            (first,) = done
            sends(nexts[first], first.result(), "yes")
            answers = await asyncio.gather(*calls)
            assert len({one.content for one in answers}) == 1
            assert sum("idempotent-replayed" not in one.headers for one in answers) == 1
            assert not any(one.done() for one in rest), "a second generation"
            for one in rest:
                one.cancel()
            await asyncio.wait(rest)


def claim(key="k", *, stream_id="s", tenant=None, **fields):
    return KeyClaim(tenant=tenant, key=key, holder=KeyHolder(stream_id, b"d"), **fields)


async def test_a_key_has_one_owner_and_goes_to_the_next_without_it(tmp_path):
    names = ["a", "b", "c"]
    keys = [f"key {number}" for number in range(60)]
    owners = [owners_of(None, key, names)[0] for key in keys]
    assert min(owners.count(name) for name in names) > 10
    assert [owners_of(None, key, names[::-1])[0] for key in keys] == owners
    # "c" is not there.
    async with member(tmp_path, "a", ["b", "c"]) as a, member(tmp_path, "b", ["a", "c"]) as b:
        for key in keys[:12]:
            first = await a.group.keys.claim(claim(key, stream_id="of a"))
            assert first.stream_id == "of a"
            assert await b.group.keys.claim(claim(key, stream_id="of b")) == first
            taken = await b.group.keys.claim(claim(key, stream_id="of b", instead_of="of a"))
            assert taken.stream_id == "of b"
            assert await a.group.keys.claim(claim(key, instead_of="of a")) == taken


async def test_a_tenant_has_half_of_the_keys():
    keys = LocalKeys(max_keys=8)
    await keys.claim(claim("mine", stream_id="first", tenant="b"))
    for number in range(20):
        await keys.claim(claim(f"key {number}", stream_id="first", tenant="a"))
    assert (await keys.claim(claim("mine", tenant="b"))).stream_id == "first"
    assert (await keys.claim(claim("key 19", tenant="a"))).stream_id == "first"
    assert (await keys.claim(claim("key 15", tenant="a"))).stream_id == "s"
    for number in range(20):
        await keys.claim(claim("key", stream_id="first", tenant=f"tenant {number}"))
    assert sum(map(len, keys._tenants.values())) == 8
