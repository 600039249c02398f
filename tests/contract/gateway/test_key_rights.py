"""What an API key may do, and how much: administration needs its scope, and limits of a key are
those of HTTP and gRPC together."""

import asyncio
import json
import logging

import grpc.aio
import pytest
from contract.frontend_gateway import gateway, post

from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import ForbiddenError, OverloadedError
from pagewire_shared.process.logs import FIELDS
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.security import audit

KEYS = """
plain=sk-plain
ops=sk-ops admin
few=sk-few requests-per-minute=2
words=sk-words tokens-per-minute=5
narrow=sk-narrow streams=1
"""


def bearer(name):
    return {"authorization": f"Bearer sk-{name}"}


def metadata(name):
    return tuple(bearer(name).items())


def keyed(checkpoint, tmp_path, text=KEYS, **settings):
    file = tmp_path / "keys"
    file.write_text(text)
    return gateway(checkpoint, api_key_file=str(file), **settings)


ADMIN_CALLS = [
    ("Audit", admin_pb2.AuditRequest()),
    ("Topology", admin_pb2.TopologyRequest()),
    ("ResetPrefixCache", admin_pb2.ResetPrefixCacheRequest()),
    ("SelfTest", admin_pb2.SelfTestRequest()),
    ("SetRoles", admin_pb2.SetRolesRequest(worker="ab", roles=[1])),
]


async def test_administration_needs_a_key_for_it(checkpoint, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with keyed(checkpoint, tmp_path) as (client, attach, frontend):
        admin = admin_pb2_grpc.AdminServiceStub(frontend.channel)
        for name, request in ADMIN_CALLS:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await getattr(admin, name)(request, metadata=metadata("plain"), timeout=5)
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED, name
            assert isinstance(from_rpc_error(caught.value), ForbiddenError)
        assert not attach.unread()
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/v1/models", headers=bearer("plain"))).status_code == 200
        asked = asyncio.ensure_future(
            admin.ResetPrefixCache(
                admin_pb2.ResetPrefixCacheRequest(), metadata=metadata("ops"), timeout=1
            )
        )
        await attach.next("reset_prefix_cache")
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    said = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    calls = {
        (one["admin_call"], one["api_key"], one["outcome"]) for one in said if "admin_call" in one
    }
    assert {(name, "plain", "permission_denied") for name, _ in ADMIN_CALLS} <= calls
    assert ("ResetPrefixCache", "ops", "cancelled") in calls


async def test_protected_metrics_need_an_admin_key(checkpoint, tmp_path):
    async with keyed(checkpoint, tmp_path, protect_metrics=True) as (client, _, _):
        assert (await client.get("/metrics")).status_code == 401
        refused = await client.get("/metrics", headers=bearer("plain"))
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "permission_denied"
        assert (await client.get("/metrics", headers=bearer("ops"))).status_code == 200


async def test_without_keys_administration_is_open(checkpoint):
    async with gateway(checkpoint) as (client, attach, frontend):
        admin = admin_pb2_grpc.AdminServiceStub(frontend.channel)
        asked = asyncio.ensure_future(admin.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest()))
        await attach.next("reset_prefix_cache")
        asked.cancel()
        assert (await client.get("/metrics")).status_code == 200


async def test_requests_of_a_minute(checkpoint, tmp_path):
    async with keyed(checkpoint, tmp_path) as (client, attach, frontend):
        first = post(client, "/v1/completions", {"prompt": "x"}, headers=bearer("few"))
        attach.say(await attach.next("submit"), "y")
        answer = await first
        assert answer.status_code == 200
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == "1"
        assert (await client.get("/v1/models", headers=bearer("few"))).status_code == 200, "free"
        call = frontend.stub.Complete(pb.CompleteRequest(text="x"), metadata=metadata("few"))
        attach.say(await attach.next("submit"), "y")
        assert [answer async for answer in call]
        refused = await client.post("/v1/completions", json={"prompt": "x"}, headers=bearer("few"))
        assert refused.status_code == 429
        assert "requests per minute" in refused.json()["error"]["message"]
        assert 1 <= int(refused.headers["retry-after"]) <= 30
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await frontend.stub.Complete(
                pb.CompleteRequest(text="x"), metadata=metadata("few")
            ).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        error = from_rpc_error(caught.value)
        assert isinstance(error, OverloadedError)
        assert error.retry_after_ms is not None
        other = post(client, "/v1/completions", {"prompt": "x"}, headers=bearer("plain"))
        attach.say(await attach.next("submit"), "y")
        assert (await other).status_code == 200


async def test_tokens_of_a_minute(checkpoint, tmp_path):
    async with keyed(checkpoint, tmp_path) as (client, attach, _):
        body = {"prompt": [3, 4, 5, 6]}
        first = post(client, "/v1/completions", body, headers=bearer("words"))
        attach.say(await attach.next("submit"), "many words and more of them")
        assert (await first).status_code == 200
        refused = await client.post("/v1/completions", json=body, headers=bearer("words"))
        assert refused.status_code == 429
        assert "tokens per minute" in refused.json()["error"]["message"]
        assert refused.headers["x-ratelimit-limit-tokens"] == "5"


async def test_streams_at_once(checkpoint, tmp_path):
    async with keyed(checkpoint, tmp_path) as (client, attach, frontend):
        first = post(client, "/v1/completions", {"prompt": "x"}, headers=bearer("narrow"))
        submit = await attach.next("submit")
        refused = await client.post(
            "/v1/completions", json={"prompt": "x"}, headers=bearer("narrow")
        )
        assert refused.status_code == 429
        assert "open at once" in refused.json()["error"]["message"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await frontend.stub.Complete(
                pb.CompleteRequest(text="x"), metadata=metadata("narrow")
            ).read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        attach.say(submit, "y")
        assert (await first).status_code == 200
        again = post(client, "/v1/completions", {"prompt": "x"}, headers=bearer("narrow"))
        attach.say(await attach.next("submit"), "y")
        assert (await again).status_code == 200
        several = await client.post(
            "/v1/completions", json={"prompt": ["x", "y"]}, headers=bearer("narrow")
        )
        assert several.status_code == 429, "each prompt is a stream"


async def test_one_key_of_several_cannot_open_all_there_is(checkpoint, tmp_path):
    keys = "a=sk-a\nb=sk-b\n"
    async with keyed(checkpoint, tmp_path, keys, max_open_requests=4) as (client, attach, _):
        calls = [
            post(client, "/v1/completions", {"prompt": "x"}, headers=bearer("a")) for _ in range(2)
        ]
        submits = [await attach.next("submit") for _ in calls]
        refused = await client.post("/v1/completions", json={"prompt": "x"}, headers=bearer("a"))
        assert refused.status_code == 429
        assert "open at once" in refused.json()["error"]["message"]
        calls.append(post(client, "/v1/completions", {"prompt": "x"}, headers=bearer("b")))
        submits.append(await attach.next("submit"))
        for submit in submits:
            attach.say(submit, "y")
        assert [(await call).status_code for call in calls] == [200] * 3


async def test_the_audit_log_tells_who_did_what_and_no_keys(checkpoint, tmp_path):
    path = tmp_path / "audit"
    audit.use(str(path), "frontend")
    try:
        async with keyed(checkpoint, tmp_path) as (client, attach, frontend):
            await client.get("/v1/models", headers={"authorization": "Bearer sk-wrong"})
            await client.post("/sleep", headers={**bearer("plain"), "x-request-id": "night"})
            admin = admin_pb2_grpc.AdminServiceStub(frontend.channel)
            with pytest.raises(grpc.aio.AioRpcError):
                await admin.Topology(admin_pb2.TopologyRequest(), metadata=metadata("plain"))
            asked = asyncio.ensure_future(
                admin.ResetPrefixCache(
                    admin_pb2.ResetPrefixCacheRequest(model="tiny"), metadata=metadata("ops")
                )
            )
            await attach.next("reset_prefix_cache")
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            (tmp_path / "keys").write_text("a=sk-other\n")
            await asyncio.sleep(1.1)
            await client.get("/v1/models", headers=bearer("other"))
    finally:
        audit.close()
    text = path.read_text()
    assert "sk-" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    refused = [line for line in lines if line["event"] == audit.REFUSED]
    assert [(one["what"], one.get("who"), one["code"]) for one in refused] == [
        ("/v1/models", None, "invalid_api_key"),
        ("/sleep", "plain", "permission_denied"),
        ("/pagewire.scheduler.v1.AdminService/Topology", "plain", "permission_denied"),
    ]
    assert (refused[1]["where"], refused[1]["request_id"]) == ("127.0.0.1", "night")
    assert refused[2]["where"].startswith("ipv4:127.0.0.1:")
    (call,) = [line for line in lines if line["event"] == "admin_call"]
    assert (call["call"], call["who"], call["outcome"]) == ("ResetPrefixCache", "ops", "cancelled")
    assert call["asked"] == {"model": "tiny"}
    (changed,) = [line for line in lines if line["event"] == "keys_changed"]
    assert changed["num_keys"] == 1
