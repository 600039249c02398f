"""POST /score, /rerank, /pooling and /classify: what reaches the scheduler, what comes back, and
what is refused."""

import asyncio
import base64
import math
from pathlib import Path

import numpy as np
import pytest
from contract.frontend_gateway import gateway, post
from contract.vector_answers import embed, prompt_of, submits
from tokenizers import Tokenizer

from pagewire import AsyncClient
from pagewire_protos.common.v1 import pooling_pb2
from pagewire_shared.errors import InvalidRequestError
from support.checkpoints.encoder_checkpoints import (
    HIDDEN,
    make_encoder,
    write_sentence_files,
)

QUERY = "the capital of france"
DOCUMENTS = ["paris is the capital", "berlin", "the cat and the dog and the tree"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_encoder(tmp_path_factory.mktemp("models") / "tiny", "BertModel")
    write_sentence_files(folder, pooling="mean", is_normalized=True)
    return folder


@pytest.fixture(scope="module")
def cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return make_encoder(folder, "BertForSequenceClassification", num_labels=1)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return make_encoder(folder, "ModernBertForSequenceClassification", num_labels=3)


def logits_of(token_ids: list[int]) -> list[float]:
    """Return class scores that say which prompt they are of."""
    return [len(token_ids) / 8]


async def test_a_cross_encoder_scores_pairs(cross: Path) -> None:
    tokenizer = Tokenizer.from_file(str(cross / "tokenizer.json"))
    pairs = [tokenizer.encode(QUERY, document) for document in DOCUMENTS]
    async with gateway(cross) as (client, attach, _):
        call = post(client, "/v1/rerank", {"query": QUERY, "documents": DOCUMENTS, "top_n": 2})
        asked = await submits(attach, 3)
        for submit, pair in zip(asked, sorted(pairs, key=len), strict=True):
            assert prompt_of(submit) == pair.ids
            assert submit.pool.kind == pooling_pb2.POOLING_KIND_SCORES
            assert submit.pool.second_start == pair.type_ids.index(1)
            embed(attach, submit, logits_of(pair.ids))
        answer = (await call).json()
    expected = [1 / (1 + math.exp(-logits_of(pair.ids)[0])) for pair in pairs]
    assert [item["index"] for item in answer["results"]] == [2, 0]
    for item in answer["results"]:
        assert item["relevance_score"] == pytest.approx(expected[item["index"]], abs=1e-6)
        assert item["document"] == {"text": DOCUMENTS[item["index"]]}
    assert answer["usage"]["prompt_tokens"] == sum(map(len, pairs))


async def test_forms_of_scores(cross: Path) -> None:
    async def answered(path: str, body: dict[str, object]) -> dict[str, object]:
        call = post(client, path, body)
        for submit in await submits(attach, 2):
            embed(attach, submit, logits_of(prompt_of(submit)))
        return (await call).json()

    async with gateway(cross) as (client, attach, frontend):
        raw = await answered(
            "/v1/score",
            {"text_1": ["a", "the b"], "text_2": ["c", "d"], "use_activation": False},
        )
        assert [item["score"] for item in raw["data"]] == [5 / 8, 6 / 8]
        listed = await answered("/score", {"queries": "a", "documents": ["c", "the d"]})
        assert [item["index"] for item in listed["data"]] == [0, 1]
        cohere = await answered("/v2/rerank", {"query": "a", "documents": ["c", {"text": "the d"}]})
        assert [set(item) for item in cohere["results"]] == [{"index", "relevance_score"}] * 2
        cut = post(
            client,
            "/rerank",
            {"query": "a b c", "documents": ["a b c d e"], "truncate_prompt_tokens": 7},
        )
        [submit] = await submits(attach, 1)
        assert submit.pool.second_start == 4, "[CLS] two [SEP], then two and [SEP]"
        assert len(prompt_of(submit)) == 7
        embed(attach, submit, [0.0])
        assert (await cut).status_code == 200
        async with AsyncClient(frontend.address, timeout_seconds=20) as grpc_client:
            call = asyncio.create_task(grpc_client.score("a", ["c", "the d"]))
            for submit in await submits(attach, 2):
                embed(attach, submit, logits_of(prompt_of(submit)))
            scores = (await call).scores
    assert scores == pytest.approx([item["score"] for item in listed["data"]])


async def test_classes(classifier: Path) -> None:
    async with gateway(classifier) as (client, attach, frontend):
        call = post(client, "/classify", {"input": ["a", "the b"]})
        for submit, scores in zip(
            await submits(attach, 2), ([0, 0, 3.0], [5.0, 0, 0]), strict=True
        ):
            assert submit.pool.second_start == 0
            embed(attach, submit, scores)
        [first, second] = (await call).json()["data"]
        call = post(client, "/pooling", {"input": "a", "use_activation": False})
        [submit] = await submits(attach, 1)
        embed(attach, submit, [1.0, 2.0, 3.0])
        assert (await call).json()["data"][0]["data"] == [1.0, 2.0, 3.0]
        refused = await client.post("/score", json={"queries": "a", "documents": "b"})
        async with AsyncClient(frontend.address, timeout_seconds=20) as grpc_client:
            task = asyncio.create_task(grpc_client.classify("a"))
            [submit] = await submits(attach, 1)
            embed(attach, submit, [0, 0, 3.0])
            [found] = (await task).outputs
    assert (first["label"], second["label"], first["num_classes"]) == ("label 2", "label 0", 3)
    assert sum(first["probs"]) == pytest.approx(1.0)
    assert first["probs"][2] == pytest.approx(math.exp(3) / (math.exp(3) + 2))
    assert (found.label, found.probs) == ("label 2", pytest.approx(first["probs"]))
    assert refused.status_code == 400
    assert "3 classes" in refused.json()["error"]["message"]


async def test_vectors_of_an_encoder_follow_its_files(encoder: Path) -> None:
    vectors = {"a": [3.0, 4.0] + [0.0] * (HIDDEN - 2), "b": [5.0, 12.0] + [0.0] * (HIDDEN - 2)}
    async with gateway(encoder, embedding_size=HIDDEN) as (client, attach, frontend):
        call = post(client, "/v1/embeddings", {"input": "a"})
        [submit] = await submits(attach, 1)
        assert submit.pool.kind == pooling_pb2.POOLING_KIND_MEAN
        assert submit.pool.is_normalized is True
        embed(attach, submit, vectors["a"])
        assert (await call).json()["data"][0]["embedding"] == vectors["a"]
        call = post(client, "/score", {"queries": "a", "documents": ["the b", "a"]})
        for submit, name in zip(await submits(attach, 2), "ab", strict=True):
            embed(
                attach, submit, (np.array(vectors[name]) / np.linalg.norm(vectors[name])).tolist()
            )
        scores = [item["score"] for item in (await call).json()["data"]]
        body = {"input": "a", "dimensions": 2, "encoding_format": "base64"}
        call = post(client, "/pooling", body)
        [submit] = await submits(attach, 1)
        assert submit.pool.kind == pooling_pb2.POOLING_KIND_TOKENS
        rows = [vectors["a"], vectors["b"], vectors["a"]]
        embed(attach, submit, [number for row in rows for number in row])
        text = (await call).json()["data"][0]["data"]
        async with AsyncClient(frontend.address, timeout_seconds=20) as grpc_client:
            task = asyncio.create_task(grpc_client.pool("a", normalize=False))
            [submit] = await submits(attach, 1)
            embed(attach, submit, [number for row in rows for number in row])
            assert (await task).outputs == [rows]
    assert scores == pytest.approx([63 / 65, 1.0])
    found = np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(3, 2)
    np.testing.assert_allclose(found, [[0.6, 0.8], [5 / 13, 12 / 13], [0.6, 0.8]], rtol=1e-6)


BAD_BODIES = [
    ("/rerank", {"query": "a", "documents": []}, "documents"),
    ("/rerank", {"query": "a", "documents": ["b"] * 257}, "documents"),
    ("/rerank", {"query": "a", "documents": ["b", "cat " * 600]}, "documents"),
    ("/rerank", {"query": "a", "documents": ["b", 5]}, "documents"),
    ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
    ("/rerank", {"query": "a", "documents": ["b"], "max_tokens_per_doc": 9}, "max_tokens_per_doc"),
    ("/score", {"queries": "a"}, "queries"),
    ("/score", {"queries": "a", "text_2": "b"}, "queries"),
    ("/score", {"text_1": ["a", "b"], "text_2": ["c"] * 3}, "text_1"),
    (
        "/score",
        {"queries": "a", "documents": "b", "truncate_prompt_tokens": 3},
        "truncate_prompt_tokens",
    ),
    (
        "/score",
        {"queries": "a", "documents": "b", "truncate_prompt_tokens": 513},
        "truncate_prompt_tokens",
    ),
    ("/classify", {"input": []}, "input"),
    ("/classify", {"input": "a", "messages": [{"role": "user", "content": "a"}]}, "input"),
    ("/pooling", {"input": "a", "task": "plugin"}, "task"),
    ("/v1/completions", {"prompt": "a"}, "model"),
]


async def test_bad_bodies_name_their_field(cross: Path) -> None:
    async with gateway(cross) as (client, _, frontend):
        for path, body, field in BAD_BODIES:
            answer = await client.post(path, json=body)
            assert answer.status_code == 400, (path, body)
            assert answer.json()["error"]["param"] == field, (path, body)
        async with AsyncClient(frontend.address, timeout_seconds=20) as grpc_client:
            for call in (grpc_client.complete("a"), grpc_client.score([], ["a"])):
                with pytest.raises(InvalidRequestError):
                    async for _ in call if hasattr(call, "__aiter__") else _once(call):
                        pass


async def _once(call):
    yield await call


async def test_a_decoder_serves_no_classes(checkpoint: Path) -> None:
    async with gateway(checkpoint, embedding_size=4) as (client, attach, _):
        answer = await client.post("/classify", json={"input": "a"})
        assert answer.json()["error"]["param"] == "model"
        call = post(client, "/pooling", {"input": "a"})
        [submit] = await submits(attach, 1)
        assert submit.pool.kind == pooling_pb2.POOLING_KIND_LAST
        embed(attach, submit)
        assert len((await call).json()["data"][0]["data"]) == 4
