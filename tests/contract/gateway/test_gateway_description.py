"""Real answers follow the schemas of the gateway's own /openapi.json."""

import json

from contract.frontend_gateway import gateway, post
from contract.vector_answers import embed

from support.oracles.json_schema import is_valid

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
RICH = {"logprobs": True, "top_logprobs": 0, "return_token_ids": True}


def schema_of(document, method, path, response):
    """Return the schema that the description has for a response."""
    answer = document["paths"][path][method]["responses"][str(response.status_code)]
    kind = response.headers["content-type"].partition(";")[0]
    content = answer["content"][kind]
    return content.get("x-event-schema", content["schema"])


def check(document, method, path, response):
    """Check a response, event by event where it is a stream."""
    schema = schema_of(document, method, path, response)
    if response.headers["content-type"].startswith("text/event-stream"):
        *events, done = response.text.removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        values = [json.loads(event.removeprefix("data: ")) for event in events]
        assert values
    else:
        values = [response.json()]
    for value in values:
        assert is_valid(value, schema, document), (path, value)


async def test_answers_follow_their_schemas(checkpoint):
    async with gateway(checkpoint, embedding_size=4) as (client, attach, _):
        document = (await client.get("/openapi.json")).json()
        for path, body in (
            ("/v1/chat/completions", CHAT),
            ("/v1/chat/completions", {**CHAT, **RICH}),
            ("/v1/completions", {"prompt": "x"}),
            ("/v1/completions", {"prompt": "x", "return_token_ids": True, "echo": True}),
        ):
            options = {"include_usage": True}
            for extra in ({}, {"stream": True}, {"stream": True, "stream_options": options}):
                call = post(client, path, {**body, **extra})
                logprob = -1.0 if "logprobs" in body else None
                attach.answer(await attach.next("submit"), 0, "Grüße", logprob=logprob)
                response = await call
                assert response.status_code == 200, response.text
                check(document, "post", path, response)
        for kind in ("float", "base64"):
            call = post(client, "/v1/embeddings", {"input": "x", "encoding_format": kind})
            embed(attach, await attach.next("submit"))
            check(document, "post", "/v1/embeddings", await call)
        for path in ("/v1/models", "/health", "/ready", "/ping", "/live", "/version"):
            check(document, "get", path, await client.get(path))
        check(document, "get", "/v1/models/{model_id}", await client.get("/v1/models/tiny"))
        check(document, "get", "/v1/models/{model_id}", await client.get("/v1/models/a/b"))
        for path, body in (
            ("/tokenize", {"prompt": "x", "return_token_strs": True}),
            ("/detokenize", {"tokens": [5, 6]}),
            ("/detokenize", {}),
            ("/v1/completions", {"prompt": "x", "model": "other"}),
        ):
            check(document, "post", path, await client.post(path, json=body))


def test_a_wrong_answer_does_not():
    document = {"components": {"schemas": {"A": {"type": "object", "required": ["a"]}}}}
    assert is_valid({"a": 1}, {"$ref": "#/components/schemas/A"}, document)
    assert not is_valid({}, {"$ref": "#/components/schemas/A"}, document)
