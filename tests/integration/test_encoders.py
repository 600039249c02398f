"""A cross-encoder in a whole deployment: its scores are those of transformers, and no kill of a
worker loses or changes any."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer

from pagewire import AsyncClient
from pagewire_shared.errors import InvalidRequestError
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.encoder_checkpoints import MAX_POSITIONS, WORDS, make_encoder
from support.traffic.streams import audit, eventually_clean

NUM_DOCUMENTS = 30
QUERY = "which city is the capital of germany"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("encoder") / "model"
    make_encoder(
        folder,
        "BertForSequenceClassification",
        num_labels=1,
        hidden_size=256,
        num_hidden_layers=6,
        intermediate_size=1024,
    )
    cluster = start_cluster(folder, max_num_batched_tokens=MAX_POSITIONS)
    yield cluster
    cluster.local.stop()


def make_documents() -> list[str]:
    generator = random.Random(6)
    words = " ".join(WORDS).split()
    return [
        " ".join(generator.choices(words, k=generator.randrange(2, 100)))
        for _ in range(NUM_DOCUMENTS)
    ]


def expected_scores(cell: Cluster) -> list[float]:
    """Return transformers' scores, each pair alone."""
    tokenizer = Tokenizer.from_file(str(cell.checkpoint / "tokenizer.json"))
    model = transformers.AutoModelForSequenceClassification.from_pretrained(cell.checkpoint).eval()
    scores = []
    for document in make_documents():
        pair = tokenizer.encode(QUERY, document)
        with torch.inference_mode():
            output = model(torch.tensor([pair.ids]), token_type_ids=torch.tensor([pair.type_ids]))
        scores.append(float(output.logits[0, 0]))
    return scores


async def score_all(address: str) -> list[float]:
    async with AsyncClient(address, timeout_seconds=90) as client:
        found = await client.score(QUERY, make_documents(), use_activation=False)
        return found.scores


async def num_computed(address: str) -> int:
    return sum(pool.num_computed_tokens for pool in (await audit(address)).scheduler.pools)


async def score_with_kill(cell: Cluster) -> list[float]:
    begun = await num_computed(cell.grpc_address)
    scores = asyncio.create_task(score_all(cell.grpc_address))
    while await num_computed(cell.grpc_address) - begun < 3 * MAX_POSITIONS:
        await asyncio.sleep(0.01)
    assert not scores.done(), "ended before the kill"
    os.kill(cell.processes["worker"][0], signal.SIGKILL)
    return await scores


def test_scores_equal_transformers_and_survive_a_kill(cell: Cluster) -> None:
    alone = expected_scores(cell)
    found = asyncio.run(score_all(cell.grpc_address))
    np.testing.assert_allclose(found, alone, atol=1e-4)
    assert asyncio.run(score_with_kill(cell)) == found, "not one bit depends on the batch"
    asyncio.run(eventually_clean(cell.grpc_address, 1, timeout_seconds=30))


def test_an_encoder_generates_nothing(cell: Cluster) -> None:
    async def generate() -> None:
        async with AsyncClient(cell.grpc_address, timeout_seconds=60) as client:
            async for _ in client.complete("hello"):
                pass

    with pytest.raises(InvalidRequestError, match="is an encoder: it serves scores and classes"):
        asyncio.run(generate())
