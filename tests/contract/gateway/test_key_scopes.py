"""Every HTTP route and every gRPC method, with no key, a key that ended, one without the scope, and
the right one; and the models that a key may use."""

import re

import grpc.aio
import pytest
from contract.frontend_gateway import gateway, post

from pagewire_frontend.access.scopes import ANY_KEY, METHODS, is_open, scope_of_path
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.identity.key_rights import KeyScope
from pagewire_shared.identity.salted_key import salted

SALTED = "sk-salted-key-of-many-characters"
KEYS = "\n".join(
    [
        *(f"{scope}=sk-{scope} scope={scope}" for scope in KeyScope),
        "ended=sk-ended admin expires=2020-01-01",
        f"salted={salted(SALTED)} model=other",
    ]
)
SECONDS = 0.3
"""For calls that wait for workers, which are not there: what matters is that they are let in."""


def keyed(checkpoint, tmp_path, **settings):
    file = tmp_path / "keys"
    file.write_text(KEYS)
    return gateway(checkpoint, api_key_file=str(file), protect_metrics=True, **settings)


def bearer(name):
    return {} if name is None else {"authorization": f"Bearer sk-{name}"}


def wrong_for(scope):
    return next(one for one in KeyScope if one is not scope)


def cases(scope):
    """Yield (what the key is, key, whether it is let in)."""
    yield "no key", None, False
    yield "ended", "ended", False
    if scope is not ANY_KEY:
        yield "wrong scope", wrong_for(scope), False
    yield "right", scope or KeyScope.EMBED, True


async def outcome_of_route(client, method, path, key):
    """Return the status, of a request that computes nothing."""
    path = re.sub(r"{[^}]*}", "nothing", path)
    if path in ("/sleep", "/wake_up"):
        path += "?level=9&tags=nothing"
    answer = await client.request(method, path, headers=bearer(key), content=b"")
    return answer.status_code


async def test_every_route_asks_for_its_scope(checkpoint, tmp_path):
    rows, wrong = [], []
    async with keyed(checkpoint, tmp_path) as (client, _, _):
        document = (await client.get("/openapi.json")).json()
        for path, methods in document["paths"].items():
            if is_open(path, protects_metrics=True):
                continue
            scope = scope_of_path(path)
            for method in methods:
                row = {}
                for case, key, is_let_in in cases(scope):
                    row[case] = await outcome_of_route(client, method, path, key)
                    expected = 403 if case == "wrong scope" else 401
                    if (row[case] in (401, 403)) is is_let_in or (
                        not is_let_in and row[case] != expected
                    ):
                        wrong.append((method, path, case, row[case]))
                rows.append((f"{method.upper()} {path}", scope or "any", row))
    show(rows)
    assert len(rows) > 20
    assert not wrong


async def outcome_of_method(channel, method, key):
    metadata = tuple(bearer(key).items())
    # A call for one answer is also right for the first one of a stream.
    call = channel.unary_stream(method)(b"", metadata=metadata, timeout=SECONDS)
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


async def test_every_method_asks_for_its_scope(checkpoint, tmp_path):
    rows, wrong = [], []
    async with keyed(checkpoint, tmp_path) as (_, _, frontend):
        for method, scope in METHODS.items():
            row = {}
            for case, key, is_let_in in cases(scope):
                row[case] = await outcome_of_method(frontend.channel, method, key)
                refused = "PERMISSION_DENIED" if case == "wrong scope" else "UNAUTHENTICATED"
                is_refused = row[case] in ("PERMISSION_DENIED", "UNAUTHENTICATED")
                if is_refused is is_let_in or (not is_let_in and row[case] != refused):
                    wrong.append((method, case, row[case]))
            rows.append((method, scope or "any", row))
    show(rows)
    assert not wrong


def show(rows):
    for name, scope, row in rows:
        print(f"{name}: {scope}", *(f"{case} {found}" for case, found in row.items()), sep=" | ")


async def test_a_key_sees_and_uses_its_models_only(checkpoint, tmp_path):
    salted_key = {"authorization": f"Bearer {SALTED}"}
    async with keyed(checkpoint, tmp_path, model_alias=("tiny=other",)) as (client, attach, front):
        assert [one["id"] for one in await listed(client, bearer("embed"))] == ["tiny", "other"]
        assert [one["id"] for one in await listed(client, salted_key)] == ["other"]
        body = {"prompt": "x", "model": "other"}
        call = post(client, "/v1/completions", body, headers=salted_key)
        attach.say(await attach.next("submit"), "y")
        assert (await call).status_code == 200
        refused = await client.post(
            "/v1/completions", json={**body, "model": "tiny"}, headers=salted_key
        )
        assert refused.status_code == 404
        assert "served: ;" not in refused.json()["error"]["message"]
        assert "tiny, " not in refused.json()["error"]["message"]
        assert (await client.get("/v1/models/tiny", headers=salted_key)).status_code == 404
        nameless = await client.post("/v1/completions", json={"prompt": "x"}, headers=salted_key)
        assert nameless.status_code == 404, "the only model is not its own"
        metadata = tuple(salted_key.items())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await front.stub.Complete(
                pb.CompleteRequest(model="tiny", text="x"), metadata=metadata
            ).read()
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        seen = await front.stub.ListModels(pb.ListModelsRequest(), metadata=metadata)
        assert [one.name for one in seen.models] == ["other"]


async def listed(client, headers):
    return (await client.get("/v1/models", headers=headers)).json()["data"]
