"""POST /v1/embeddings: what reaches the scheduler, what comes back, and what is refused."""

import asyncio
import base64
import struct

import pytest
from contract.frontend_gateway import gateway, openai_gateway, post
from contract.frontend_peers import ids_of
from contract.vector_answers import SIZE, embed, prompt_of, send_vectors, submits, vector_of

from pagewire_protos.common.v1 import pooling_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as wire
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from pagewire_shared.rpc.errors import to_detail

PATH = "/v1/embeddings"
UNIT = [3 / 13, 4 / 13, 0.0, 12 / 13]
BAD_BODIES = [
    ({}, "input", "invalid_value"),
    ({"input": ""}, "input", "invalid_value"),
    ({"input": []}, "input", "invalid_value"),
    ({"input": [[]]}, "input", "invalid_value"),
    ({"input": 5}, "input", "invalid_type"),
    ({"input": ["a", 5]}, "input", "invalid_type"),
    ({"input": [True]}, "input", "invalid_type"),
    ({"input": [-1]}, "input", "invalid_value"),
    ({"input": [259]}, "input", "invalid_value"),
    ({"input": ["a"] * 257}, "input", "invalid_value"),
    ({"input": "x" * 513}, "input", "context_length_exceeded"),
    ({"input": "a", "messages": [{"role": "user", "content": "a"}]}, "input", "invalid_value"),
    ({"messages": []}, "messages", "invalid_type"),
    ({"messages": [{"role": "user", "content": "x" * 513}]}, "messages", None),
    ({"input": "a", "encoding_format": "hex"}, "encoding_format", "invalid_type"),
    ({"input": "a", "dimensions": 0}, "dimensions", "invalid_value"),
    ({"input": "a", "dimensions": SIZE + 1}, "dimensions", "invalid_value"),
    ({"input": "a", "dimensions": 65537}, "dimensions", "invalid_value"),
    ({"input": "a", "dimensions": "2"}, "dimensions", "invalid_type"),
    ({"input": "a", "pooling": "max"}, "pooling", "invalid_type"),
    ({"input": "a", "pooling": "cls"}, "pooling", "invalid_value"),
    ({"input": "a", "normalize": "no"}, "normalize", "invalid_type"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
    ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "invalid_value"),
    ({"input": "a", "truncate_prompt_tokens": 513}, "truncate_prompt_tokens", "invalid_value"),
    ({"input": "a", "priority": 101}, "priority", "invalid_value"),
]


def embedding_gateway(checkpoint, **settings):
    return gateway(checkpoint, embedding_size=SIZE, **settings)


async def audited(attach):
    """Return what the frontend holds once it has read all that was sent: it reads in order."""
    attach.send(audit_query=wire.AuditQuery(query_id=1))
    return (await attach.next("audit_reply")).audit


async def idle(attach):
    """Check that the frontend holds nothing."""
    audit = await audited(attach)
    assert (audit.num_open_streams, audit.num_handles, list(audit.findings)) == (0, 0, [])


async def test_what_reaches_the_scheduler(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        body = {"input": "hello", "user": "someone", "cache_salt": "s", "priority": 7}
        call = post(client, PATH, body)
        submit = await attach.next("submit")
        assert submit.WhichOneof("kind") == "pool"
        assert submit.pool.kind == pooling_pb2.POOLING_KIND_LAST
        assert submit.pool.is_normalized is True
        assert prompt_of(submit) == ids_of("hello")
        assert (submit.cache_salt, submit.priority, submit.eos_token_ids) == (b"s", 7, b"")
        assert [one.token_ids for one in submit.emitted] == [b""]
        sampling = submit.sampling
        for name in ("structured_outputs", "logprobs", "prompt_logprobs"):
            assert not sampling.HasField(name), name
        assert not sampling.stop_token_ids
        assert not sampling.logit_bias
        embed(attach, submit)
        answer = (await call).json()
        call = post(client, PATH, {"input": "x", "pooling": "mean", "normalize": False})
        submit = await attach.next("submit")
        assert submit.pool.kind == pooling_pb2.POOLING_KIND_MEAN
        assert submit.pool.is_normalized is False
        embed(attach, submit)
        assert (await call).status_code == 200
        await idle(attach)
    assert (answer["object"], answer["model"]) == ("list", "tiny")
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5}
    vector = vector_of(ids_of("hello"))
    assert answer["data"] == [{"object": "embedding", "index": 0, "embedding": vector}]


async def test_vectors_are_in_the_order_of_the_inputs(checkpoint):
    texts = ["ccc", "a", "dddd", "bb"]
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": texts, "encoding_format": "float"})
        for submit in reversed(await submits(attach, 4)):
            embed(attach, submit)
        answer = (await call).json()
        # All in one step, too.
        call = post(client, PATH, {"input": texts})
        asked = await submits(attach, 4)
        send_vectors(attach, [(submit, vector_of(prompt_of(submit))) for submit in asked])
        for submit in asked:
            attach.finish(submit, 0, reason=1)
        at_once = (await call).json()
    assert [item["index"] for item in answer["data"]] == [0, 1, 2, 3]
    expected = [vector_of(ids_of(text)) for text in texts]
    assert [item["embedding"] for item in answer["data"]] == expected
    assert at_once["data"] == answer["data"]
    assert answer["usage"] == {"prompt_tokens": 10, "total_tokens": 10}


@pytest.mark.parametrize("given", [[5, 6, 7], [[5, 6, 7]]])
async def test_token_ids_are_taken_as_they_are(checkpoint, given):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": given})
        submit = await attach.next("submit")
        assert prompt_of(submit) == [5, 6, 7]
        embed(attach, submit)
        assert len((await call).json()["data"]) == 1


async def test_a_conversation_opens_no_turn(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"messages": [{"role": "user", "content": "hi"}]})
        submit = await attach.next("submit")
        assert prompt_of(submit) == [1, *ids_of("user\nhi"), 2, *ids_of("\n")]
        embed(attach, submit)
        assert (await call).status_code == 200


async def test_base64_is_little_endian_float32(checkpoint):
    vector = [1.5, -2.25, 3.0, 0.1]
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": "x", "encoding_format": "base64"})
        embed(attach, await attach.next("submit"), vector)
        [item] = (await call).json()["data"]
    assert base64.b64decode(item["embedding"]) == struct.pack("<4f", *vector)


async def test_openai_client_decodes_both_forms(checkpoint):
    async with openai_gateway(checkpoint, embedding_size=SIZE) as (client, attach):
        # Asked for nothing, the client wants base64 and decodes it.
        for more in ({}, {"encoding_format": "float"}):
            call = asyncio.create_task(
                client.embeddings.create(model="tiny", input=["a", "bb"], **more)
            )
            for submit in reversed(await submits(attach, 2)):
                embed(attach, submit)
            answer = await call
            vectors = [item.embedding for item in answer.data]
            assert vectors == [vector_of(ids_of("a")), vector_of(ids_of("bb"))]
            assert (answer.usage.prompt_tokens, answer.model) == (3, "tiny")


@pytest.mark.parametrize(
    ("body", "vector", "expected"),
    [
        ({"dimensions": 2}, UNIT, [0.6, 0.8]),
        ({"dimensions": 2, "normalize": False}, [3.0, 4.0, 0.0, 12.0], [3.0, 4.0]),
        ({"dimensions": SIZE}, UNIT, UNIT),
        # Nothing has no direction: zeros and not NaN.
        ({"dimensions": 2}, [0.0, 0.0, 1.0, 0.0], [0.0, 0.0]),
    ],
)
async def test_dimensions_keep_the_length(checkpoint, body, vector, expected):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": "x", **body})
        embed(attach, await attach.next("submit"), vector)
        [item] = (await call).json()["data"]
    assert item["embedding"] == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_what_is_no_number_is_an_error(checkpoint, number):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": "x", "dimensions": 2})
        embed(attach, await attach.next("submit"), [1.0, 2.0, number, 3.0])
        response = await call
    assert response.status_code == 500
    assert "not finite" in response.json()["error"]["message"]


async def test_inputs_are_cut_only_where_that_is_asked(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        for text, kept, expected in (
            ("x" * 512, None, ids_of("x" * 512)),
            ("hello", 3, ids_of("llo")),
            ("hello", 9, ids_of("hello")),
            ("a" + "x" * 512, -1, ids_of("x" * 512)),
        ):
            call = post(client, PATH, {"input": text, "truncate_prompt_tokens": kept})
            submit = await attach.next("submit")
            assert prompt_of(submit) == expected
            embed(attach, submit)
            assert (await call).json()["usage"]["prompt_tokens"] == len(expected)


async def test_every_bad_field_is_a_400_that_names_it(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        for body, param, code in BAD_BODIES:
            response = await client.post(PATH, json=body)
            assert response.status_code == 400, (body, response.text)
            error = response.json()["error"]
            assert error["param"] == param, (body, error)
            assert code is None or error["code"] == code, (body, error)
        await idle(attach)


@pytest.mark.parametrize("given", [["a", ""], [[3], [259]], ["x", "x" * 513]])
async def test_one_bad_input_of_several_refuses_all(checkpoint, given):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        response = await client.post(PATH, json={"input": given})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == "input"
        assert error["message"].startswith("input 1: ")
        # The good one may have got as far as the scheduler.
        attach.send(audit_query=wire.AuditQuery(query_id=1))
        while (message := await attach.received.get()).WhichOneof("message") != "audit_reply":
            assert message.WhichOneof("message") in ("submit", "abort", "heartbeat")
        assert message.audit_reply.audit.num_open_streams == 0


async def test_256_inputs_are_taken(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": [[3 + i % 256, 4] for i in range(256)]})
        for submit in await submits(attach, 256):
            embed(attach, submit)
        data = (await call).json()["data"]
    assert [item["embedding"][1] for item in data] == [(3 + i) / 64 for i in range(256)]


async def test_a_model_without_vectors_is_a_400(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": ["a", "b", "c"]})
        first, *others = [await attach.next("submit") for _ in range(3)]
        detail = to_detail(InvalidRequestError("tiny makes no vectors", field="model"))
        attach.send(rejected=wire.Rejected(handle=first.handle, epoch=0, error=detail))
        response = await call
        # The first failure is the answer; nothing of the others is wanted.
        aborted = {(await attach.next("abort")).handle for _ in others}
        assert aborted == {submit.handle for submit in others}
        await idle(attach)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "model"


async def test_dimensions_that_no_worker_has_told_are_checked_in_the_end(checkpoint):
    async with gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": "a", "dimensions": SIZE + 1})
        embed(attach, await attach.next("submit"))
        response = await call
    assert (response.status_code, response.json()["error"]["param"]) == (400, "dimensions")


async def test_an_overloaded_cell_is_a_429(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": ["a", "bb"]})
        kept, refused = await submits(attach, 2)
        detail = to_detail(OverloadedError("full", retry_after_ms=1500))
        attach.send(rejected=wire.Rejected(handle=refused.handle, epoch=0, error=detail))
        response = await call
        assert (await attach.next("abort")).handle == kept.handle
    assert (response.status_code, response.headers["retry-after"]) == (429, "2")


async def test_a_client_that_goes_away_frees_everything(checkpoint):
    async with embedding_gateway(checkpoint) as (client, attach, _):
        call = post(client, PATH, {"input": ["a", "bb", "ccc"]})
        asked = await submits(attach, 3)
        embed(attach, asked[0])
        assert (await audited(attach)).num_handles == 2
        call.cancel()
        aborted = {(await attach.next("abort")).handle for _ in range(2)}
        assert aborted == {asked[1].handle, asked[2].handle}
        await idle(attach)
