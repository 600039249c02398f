"""Vectors of the clients and the offline API against a scripted server on a real socket."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagewire.client.blocking_client import Client
from pagewire.client.client import AsyncClient
from pagewire.client.embeddings import EmbeddingRequestOutput
from pagewire.client.events import Message, Usage
from pagewire.offline.offline_batch import MAX_ATTEMPTS
from pagewire.offline.offline_run import EmbeddingRun, embedding_requests
from pagewire_protos.common.v1 import pooling_pb2, usage_pb2
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.sampling.pooling import PoolingParams
from support.fakes.scripted_inference import serving

TURN = {"role": "user", "content": "hi"}


class Scripted(inference_pb2_grpc.InferenceServiceServicer):
    """Embeds token ids as their sum and count; is away for the first `num_failures` calls."""

    def __init__(self) -> None:
        self.asked: list[inference_pb2.EmbedRequest] = []
        self.num_failures = 0
        self.num_open = self.most_open = 0

    async def Embed(
        self, request: inference_pb2.EmbedRequest, context: Any
    ) -> inference_pb2.EmbedResponse:
        self.asked.append(request)
        if len(self.asked) <= self.num_failures:
            raise UnavailableError("away")
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        await asyncio.sleep(0.001)
        self.num_open -= 1
        inputs = [list(item.token_ids.ids)[-3:] for item in request.inputs]
        return inference_pb2.EmbedResponse(
            model="m",
            embeddings=[inference_pb2.Embedding(values=[sum(ids) / 4, len(ids)]) for ids in inputs],
            usage=inference_pb2.Usage(
                prompt_tokens=sum(map(len, inputs)),
                cached_tokens=1,
                cached_tokens_by_tier=[usage_pb2.CachedTokens(tier="disk", num_tokens=1)],
            ),
        )

    async def Tokenize(
        self, request: inference_pb2.TokenizeRequest, context: Any
    ) -> inference_pb2.TokenizeResponse:
        return inference_pb2.TokenizeResponse(token_ids=list(request.text.encode()))


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Scripted]:
    scripted = Scripted()
    async with serving(scripted, tmp_path / "s"):
        yield scripted


@pytest.fixture
async def client(service: Scripted, tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"unix:{tmp_path / 's'}", timeout_seconds=20) as connected:
        yield connected


def kinds(request: inference_pb2.EmbedRequest) -> list[str | None]:
    return [item.WhichOneof("input") for item in request.inputs]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("a", ["text"]),
        ([5, 6], ["token_ids"]),
        (np.array([5, 6]), ["token_ids"]),
        ([TURN], ["conversation"]),
        ((Message("user", "hi"),), ["conversation"]),
        (["a"], ["text"]),
        ([[5], "a", [TURN], (6, 7)], ["token_ids", "text", "conversation", "token_ids"]),
        ([[]], ["token_ids"]),
        ([], []),
    ],
)
async def test_inputs_of_all_forms_are_converted(
    client: AsyncClient, service: Scripted, inputs: Any, expected: list[str]
) -> None:
    answer = await client.embed(inputs, add_special_tokens=False)
    [asked] = service.asked
    assert kinds(asked) == expected
    assert len(answer.vectors) == len(expected)
    assert asked.add_special_tokens is False
    for name in ("pooling", "dimensions", "truncate_prompt_tokens", "model"):
        assert not asked.HasField(name), name


async def test_every_parameter_is_sent(client: AsyncClient, service: Scripted) -> None:
    params = PoolingParams(pooling="mean", normalize=False, dimensions=3, truncate_prompt_tokens=-1)
    answer = await client.embed([5, 6], params, model="m")
    [asked] = service.asked
    assert asked.pooling.kind == pooling_pb2.POOLING_KIND_MEAN
    assert asked.pooling.HasField("is_normalized")
    assert asked.pooling.is_normalized is False
    assert (asked.dimensions, asked.truncate_prompt_tokens, asked.model) == (3, -1, "m")
    assert asked.add_special_tokens is True
    assert (answer.model, answer.vectors) == ("m", [[2.75, 2.0]])
    assert answer.usage == Usage(2, 0, 1, {"disk": 1})


@pytest.mark.parametrize("inputs", [[-1], [[3], [2**32]], [["a"]], [5.5], [None], [TURN, 5]])
async def test_an_invalid_input_is_named(client: AsyncClient, inputs: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await client.embed(inputs)
    assert caught.value.field in ("input", "messages")


async def test_the_blocking_client_returns_the_same_vectors(
    service: Scripted, tmp_path: Path
) -> None:
    def ask() -> list[list[float]]:
        with Client(f"unix:{tmp_path / 's'}", timeout_seconds=20) as blocking:
            return blocking.embed([[4], [8, 8]], PoolingParams(dimensions=2), model="m").vectors

    assert await asyncio.to_thread(ask) == [[1.0, 1.0], [4.0, 2.0]]
    assert service.asked[0].dimensions == 2


async def run(
    client: AsyncClient, prompts: Any, params: Any = None, concurrency: int = 256
) -> list[EmbeddingRequestOutput]:
    done: list[int] = []
    requests = embedding_requests(prompts, params)
    outputs = await EmbeddingRun(client, "m").run_all(requests, concurrency, lambda: done.append(1))
    assert len(done) == len(requests)
    return outputs


async def test_vectors_are_in_the_order_of_the_prompts(
    client: AsyncClient, service: Scripted
) -> None:
    prompts = [{"prompt_token_ids": [4 * n, 4]} for n in range(600)]
    outputs = await run(client, prompts, concurrency=7)
    assert [output.outputs.embedding for output in outputs] == [[n + 1, 2] for n in range(600)]
    assert all(len(asked.inputs) <= 256 for asked in service.asked)
    assert service.most_open <= 7


async def test_outputs_have_the_tokens_that_were_embedded(
    client: AsyncClient, service: Scripted
) -> None:
    own = [PoolingParams(truncate_prompt_tokens=3), PoolingParams(pooling="mean")]
    text, ids = await run(client, ["abcd", {"prompt_token_ids": [8]}], own)
    assert (text.prompt_token_ids, ids.prompt_token_ids) == ([98, 99, 100], [8])
    assert (ids.num_cached_tokens, ids.finished, ids.outputs.hidden_size) == (1, True, 2)
    assert ids.num_cached_tokens_by_tier == {"disk": 1}
    kinds_asked = {tuple(r.inputs[0].token_ids.ids): r.pooling.kind for r in service.asked}
    assert kinds_asked == {(97, 98, 99, 100): 0, (8,): 2}, "0 leaves it to the model"


async def test_a_call_is_repeated_when_the_server_comes_back(
    client: AsyncClient, service: Scripted
) -> None:
    service.num_failures = MAX_ATTEMPTS - 1
    [output] = await run(client, {"prompt_token_ids": [4]})
    assert output.outputs.embedding == [1.0, 1.0]
    assert len(service.asked) == MAX_ATTEMPTS


async def test_a_server_that_stays_away_is_an_error(client: AsyncClient, service: Scripted) -> None:
    service.num_failures = 100
    with pytest.raises(UnavailableError):
        await run(client, {"prompt_token_ids": [4]})
    assert len(service.asked) == MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("prompts", "params", "field"),
    [
        ([5], None, "prompts"),
        (["a", "b"], [PoolingParams()], "pooling_params"),
    ],
)
def test_bad_arguments_are_named(prompts: Any, params: Any, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        embedding_requests(prompts, params)
    assert caught.value.field == field
