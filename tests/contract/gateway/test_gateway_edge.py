"""What stands before the endpoints: keys, CORS, methods, media types, and the small endpoints."""

import asyncio
import hashlib
import json

import grpc.aio
import pytest
from contract.frontend_gateway import gateway, post
from contract.frontend_peers import running_frontend

from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import AuthenticationError
from pagewire_shared.rpc.errors import from_rpc_error

KEY = {"authorization": "Bearer sk-one"}
OPEN = (
    *("/health", "/ready", "/live", "/ping", "/version"),
    *("/", "/docs", "/openapi.json", "/page/page.css"),
)
GUARDED = ("/v1/models", "/v1/models/tiny", "/state", "/nothing")


def check_envelope(response, status, code):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code
    return error


async def test_keys_guard_all_but_what_an_orchestrator_asks(checkpoint, tmp_path):
    file = tmp_path / "keys"
    file.write_text("team-a=sk-two\n")
    settings = {"api_key": ("sk-one",), "api_key_file": str(file)}
    async with gateway(checkpoint, **settings) as (client, attach, frontend):
        for path in OPEN:
            assert (await client.get(path)).status_code == 200
        for path in GUARDED:
            refused = await client.get(path, headers={"x-request-id": "mine"})
            check_envelope(refused, 401, "invalid_api_key")
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.headers["x-request-id"] == "mine"
            wrong = await client.get(path, headers={"authorization": "Bearer sk-three"})
            assert wrong.status_code == 401
            expected = 404 if path == "/nothing" else 200
            assert (await client.get(path, headers=KEY)).status_code == expected
        assert (await client.post("/v1/completions", content=b"{")).status_code == 401
        # Beside another key, one without a name is a tenant of its own.
        unnamed = f"key-{hashlib.sha256(b'sk-one').hexdigest()[:16]}"
        for headers, tenant in ((KEY, unnamed), ({"authorization": "Bearer sk-two"}, "team-a")):
            call = post(client, "/v1/completions", {"prompt": "x"}, headers=headers)
            submit = await attach.next("submit")
            assert submit.tenant == tenant
            attach.say(submit, "y")
            assert (await call).status_code == 200
        vector = post(
            client, "/v1/embeddings", {"input": "x"}, headers={"authorization": "Bearer sk-two"}
        )
        assert (await attach.next("submit")).tenant == "team-a"
        vector.cancel()
        await _check_grpc(frontend)


async def _check_grpc(frontend):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await frontend.stub.ListModels(pb.ListModelsRequest())
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert isinstance(from_rpc_error(caught.value), AuthenticationError)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in frontend.stub.Complete(
            pb.CompleteRequest(text="x"), metadata=(("authorization", "Bearer no"),)
        ):
            raise AssertionError("nothing is said without a key")
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    metadata = (("authorization", "Bearer sk-one"),)
    models = await frontend.stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
    assert [model.name for model in models.models] == ["tiny"]
    check = frontend.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert await check(b"") == b"\x08\x01"


async def test_browsers_of_allowed_origins_only(checkpoint):
    settings = {"api_key": ("sk-one",), "cors_origin": ("https://a.example",)}
    asked = {
        "origin": "https://a.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    async with gateway(checkpoint, **settings) as (client, _, _):
        preflight = await client.options("/v1/completions", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://a.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        other = {**asked, "origin": "https://b.example"}
        refused = await client.options("/v1/completions", headers=other)
        check_envelope(refused, 400, "cors_refused")
        error = await client.get("/v1/models", headers={"origin": "https://a.example"})
        check_envelope(error, 401, "invalid_api_key")
        assert error.headers["access-control-allow-origin"] == "https://a.example"
        assert "x-request-id" in error.headers["access-control-expose-headers"]
        plain = await client.get("/live", headers={"origin": "https://b.example"})
        assert "access-control-allow-origin" not in plain.headers


async def test_methods_and_media_types(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        head = await client.head("/v1/models")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0
        options = await client.options("/v1/completions")
        assert (options.status_code, options.headers["allow"]) == (204, "OPTIONS, POST")
        assert (await client.options("/nothing")).status_code == 404
        for method, path, allow in (
            ("GET", "/v1/completions", "OPTIONS, POST"),
            ("DELETE", "/ping", "GET, HEAD, OPTIONS, POST"),
            ("POST", "/v1/models/a/b", "GET, HEAD, OPTIONS"),
        ):
            refused = await client.request(method, path)
            check_envelope(refused, 405, "method_not_allowed")
            assert refused.headers["allow"] == allow
        body = json.dumps({"prompt": "x", "n": 0}).encode()
        for given in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "x"):
            headers = {"content-type": given}
            refused = await client.post("/v1/completions", content=body, headers=headers)
            check_envelope(refused, 415, "unsupported_media_type")
        for headers in (
            {"content-type": "application/json; charset=latin-1"},
            {"content-type": "application/json", "content-encoding": "gzip"},
        ):
            refused = await client.post("/v1/completions", content=body, headers=headers)
            check_envelope(refused, 415, "unsupported_media_type")
        for headers in (
            {},
            {"content-type": 'Application/JSON; charset="UTF-8"'},
            {"content-type": "application/problem+json"},
        ):
            taken = await client.post("/v1/completions", content=body, headers=headers)
            assert check_envelope(taken, 400, "invalid_value")["param"] == "n"


async def test_bad_bodies_are_400_and_say_why(checkpoint):
    cases = {
        b"": "invalid_json",
        b"[]": "invalid_type",
        b'{"prompt": "x", "prompt": "y"}': "invalid_json",
        b'{"prompt": "x", "temperature": NaN}': "invalid_json",
        b'{"prompt": "x", "temperature": 1e999}': "invalid_json",
        b'{"prompt": "\xff"}': "invalid_json",
        b'{"prompt": "\\ud800"}': "invalid_json",
        b'{"prompt": ' + b"[" * 50_000: "invalid_json",
        b'{"prompt": [' + b"1," * 600_000 + b"1]}": "body_too_complex",
    }
    async with gateway(checkpoint) as (client, _, _):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/tokenize"):
            for body, code in cases.items():
                check_envelope(await client.post(path, content=body), 400, code)


async def test_tokenize_and_detokenize(checkpoint):
    async with gateway(checkpoint, max_body_size=2**23) as (client, _, frontend):
        body = {"model": "tiny", "prompt": "Grüße", "return_token_strs": True}
        answer = (await client.post("/tokenize", json=body)).json()
        assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
        assert answer["max_model_len"] == 512
        over_grpc = await frontend.stub.Tokenize(pb.TokenizeRequest(text="Grüße"))
        assert list(over_grpc.token_ids) == answer["tokens"]
        back = await client.post("/detokenize", json={"tokens": answer["tokens"]})
        assert back.json()["prompt"].endswith("Grüße")
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        with_opening = (await client.post("/tokenize", json=chat)).json()
        assert "token_strs" not in with_opening
        without = {**chat, "add_generation_prompt": False}
        assert (
            with_opening["count"] > (await client.post("/tokenize", json=without)).json()["count"]
        )
        for path, wrong, param in (
            ("/tokenize", {}, "prompt"),
            ("/tokenize", {**chat, "prompt": "x"}, "prompt"),
            ("/tokenize", {"prompt": 5}, "prompt"),
            ("/tokenize", {"prompt": "x" * (4 * 2**20 + 1)}, "prompt"),
            ("/tokenize", {"messages": []}, "messages"),
            ("/detokenize", {}, "tokens"),
            ("/detokenize", {"tokens": [1, -1]}, "tokens"),
            ("/detokenize", {"tokens": [99999]}, "tokens"),
            ("/detokenize", {"tokens": [1] * 2**19 + [1]}, "tokens"),
        ):
            refused = await client.post(path, json=wrong)
            assert refused.status_code == 400, refused.text
            assert refused.json()["error"]["param"] == param
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await frontend.stub.Detokenize(pb.DetokenizeRequest(token_ids=[99999]))
        assert from_rpc_error(caught.value).field == "token_ids"
        unknown = await client.post("/tokenize", json={"model": "other", "prompt": "x"})
        check_envelope(unknown, 404, "model_not_found")


async def test_health_tells_why_not_and_live_does_not_care(checkpoint):
    async with running_frontend(checkpoint, [1]) as frontend:
        import httpx

        async with httpx.AsyncClient(base_url=frontend.http_url) as client:
            for path in ("/health", "/ready", "/ping"):
                error = check_envelope(await client.get(path), 503, "unavailable")
                assert "scheduler" in error["message"]
            assert (await client.get("/live")).json() == {"status": "ok"}
            assert "version" in (await client.get("/version")).json()
            [model] = (await client.get("/v1/models")).json()["data"]
            assert None not in model.values()


async def test_a_fault_of_ours_is_a_500_with_the_envelope(checkpoint, monkeypatch):
    from pagewire_frontend.engine.tokenization import Tokenization

    async def fail(*args, **kwargs):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(Tokenization, "tokenize", fail)
    async with gateway(checkpoint) as (client, _, _):
        headers = {"x-request-id": "mine"}
        broken = await client.post("/tokenize", json={"prompt": "x"}, headers=headers)
        check_envelope(broken, 500, "internal_error")
        assert broken.headers["x-request-id"] == "mine"
        assert "secret" not in broken.text
        await asyncio.sleep(0)


async def test_the_description_is_served(checkpoint):
    async with gateway(checkpoint) as (client, _, _):
        document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    assert "/v1/chat/completions" in document["paths"]
