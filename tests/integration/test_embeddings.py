"""Vectors through whole deployments: every client sees the same ones, and no kill loses any."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import numpy as np
import openai
import pytest

from pagewire import AsyncClient, Client, PoolingParams
from pagewire_shared.errors import ContextLengthError, InvalidRequestError
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import audit, eventually_clean

TEXTS = ["a red fox", "", "a red fox jumps over the lazy dog", "42"]
NUM_INPUTS = 30
LAST, MEAN = PoolingParams(), PoolingParams(pooling="mean", normalize=False)


def test_every_client_gets_the_same_vectors(cluster: Cluster) -> None:
    texts = [text for text in TEXTS if text]
    with Client(cluster.grpc_address, timeout_seconds=60) as client:
        found = client.embed(texts)
        ids = [client.tokenize(text) for text in texts]
        by_ids = client.embed(ids)
        one_text, one_ids = client.embed(texts[0]), client.embed(ids[0])
        turns = [{"role": "user", "content": "hi"}]
        talks = client.embed([turns, "x", turns])
        one_talk = client.embed(turns)
    assert (found.model, found.usage.prompt_tokens) == (cluster.model, sum(map(len, ids)))
    assert {len(vector) for vector in found.vectors} == {64}
    assert by_ids.vectors == pytest.approx(np.array(found.vectors), abs=1e-5)
    for one in (one_text, one_ids):
        np.testing.assert_allclose(one.vectors, found.vectors[:1], atol=1e-5)
    np.testing.assert_allclose(talks.vectors[0], talks.vectors[2], atol=1e-5)
    np.testing.assert_allclose(one_talk.vectors[0], talks.vectors[2], atol=1e-5)
    api = openai.OpenAI(base_url=f"{cluster.http_url}/v1", api_key="none", max_retries=0)
    with api:
        for form in ({}, {"encoding_format": "float"}):
            answer = api.embeddings.create(model=cluster.model, input=texts, **form)
            assert answer.usage.prompt_tokens == found.usage.prompt_tokens
            vectors = [item.embedding for item in answer.data]
            np.testing.assert_allclose(vectors, found.vectors, atol=1e-5)
        [short] = api.embeddings.create(model=cluster.model, input=ids[0], dimensions=7).data
    first = np.array(found.vectors[0][:7])
    np.testing.assert_allclose(short.embedding, first / np.linalg.norm(first), atol=1e-5)


def test_what_cannot_be_embedded_is_said(cluster: Cluster) -> None:
    with Client(cluster.grpc_address, timeout_seconds=60) as client:
        [info] = client.list_models()
        for inputs in ([], TEXTS, [[-1]], [[10**6]], [["x"]], ["a"] * 257):
            with pytest.raises(InvalidRequestError) as caught:
                client.embed(inputs)
            assert caught.value.field == "input", inputs
        assert info.max_model_len is not None
        with pytest.raises(ContextLengthError):
            client.embed([5] * (info.max_model_len + 1))
        with pytest.raises(InvalidRequestError, match="have 64"):
            client.embed("a", PoolingParams(dimensions=65))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker in float32, of a model that takes its time; small steps."""
    folder = tmp_path_factory.mktemp("embedding") / "model"
    make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    cluster = start_cluster(folder, block_size=8, max_num_batched_tokens=64)
    yield cluster
    cluster.local.stop()


def make_inputs() -> list[list[int]]:
    generator = random.Random(4)
    lengths = [generator.randrange(20, 150) for _ in range(NUM_INPUTS)]
    return [[generator.randrange(3, 512) for _ in range(length)] for length in lengths]


async def embed_both(address: str) -> list[list[list[float]]]:
    """Return the vectors of all inputs, last and mean, asked for at once."""
    async with AsyncClient(address, timeout_seconds=90) as client:
        asked = [client.embed(make_inputs(), params) for params in (LAST, MEAN)]
        return [embeddings.vectors for embeddings in await asyncio.gather(*asked)]


async def num_computed(address: str) -> int:
    return sum(pool.num_computed_tokens for pool in (await audit(address)).scheduler.pools)


async def embed_with_kill(cluster: Cluster, role: str) -> list[list[list[float]]]:
    """As embed_both, while a process is killed in the middle of it."""
    begun = await num_computed(cluster.grpc_address)
    total = 2 * sum(map(len, make_inputs()))
    vectors = asyncio.create_task(embed_both(cluster.grpc_address))
    while await num_computed(cluster.grpc_address) - begun < total // 10:
        await asyncio.sleep(0.01)
    assert not vectors.done(), "ended before the kill"
    os.kill(cluster.processes[role][0], signal.SIGKILL)
    return await vectors


def test_vectors_survive_kills(alone: Cluster) -> None:
    expected = asyncio.run(embed_both(alone.grpc_address))
    for role in ("worker", "scheduler"):
        found = asyncio.run(embed_with_kill(alone, role))
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5, err_msg=role)
        asyncio.run(eventually_clean(alone.grpc_address, 1, timeout_seconds=30))
